"""Follows one other node: all partitions that this node follows there.

One request has all the busy partitions. The quiet ones have another, on a second connection
(`busy_and_quiet`). A partition that fails is skipped for a while and does not affect others.
Pauses after failures double from `PAUSE_SECONDS_MIN` to `replica.fetch.backoff.ms`;
`fetch_connection` does the same for a node that does not answer.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from millstream.client.fetch import Fetched
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.busy_and_quiet import BusyAndQuiet
from millstream.replication.fetch_connection import (
    PAUSE_SECONDS_MIN,
    Asked,
    FetchConnection,
    FetcherNode,
    FetchTask,
)
from millstream.replication.following import (
    BackOff,
    CheckpointFirst,
    FetchAnswer,
    FetchPosition,
    Step,
    TakeRecords,
)
from millstream.replication.leadership import Divergence
from millstream.replication.replicated import ReplicatedPartition

log = logging.getLogger(__name__)

# Applied in one iteration of the loop; then other work gets its turn.
BYTES_PER_TURN: Final = 256 << 10
# A throttled partition is checked again after this.
_HELD_BACK_SECONDS: Final = 0.1
# The end of a pause that is over: it wakes nobody, but the next one is longer.
_OVER: Final = 0.0


class ReplicaFetcher:
    def __init__(self, leader_id: int, node: FetcherNode) -> None:
        self.leader_id = leader_id
        self._node = node
        self._partitions: BusyAndQuiet[ReplicatedPartition] = BusyAndQuiet(node.quiet_rule)
        # When each failed partition may be fetched again, and its last pause. They are never among
        # the quiet ones.
        self._paused: dict[ReplicatedPartition, tuple[float, float]] = {}
        # Partitions whose records have to reach the disk before the next fetch.
        self._syncing: set[ReplicatedPartition] = set()
        self._problem = ""
        # The last logged problem of each partition that cannot be followed.
        self._problems: dict[ReplicatedPartition, str] = {}
        task = FetchTask(self._ask_busy, self._next_due_seconds, self._take, self._log_once)
        self._busy = FetchConnection(leader_id, node, task)
        self._quiet: FetchConnection | None = None

    def follow(self, partition: ReplicatedPartition) -> None:
        """Include it from the next request on; again, if it is known but has a new epoch."""
        self._partitions.add(partition, now=self._node.clock.monotonic())
        self._paused.pop(partition, None)
        self._busy.fetch_again()
        if self._quiet is None and len(self._partitions) >= self._node.quiet_rule.count_min:
            # The busy connection reports problems of the leader's node.
            task = FetchTask(
                self._ask_quiet, self._next_look_seconds, self._take, lambda text: None
            )
            self._quiet = FetchConnection(self.leader_id, self._node, task)

    def leave(self, partition: ReplicatedPartition) -> None:
        self._partitions.remove(partition)
        self._paused.pop(partition, None)
        self._problems.pop(partition, None)

    async def stop(self) -> None:
        await self._busy.stop()
        if self._quiet is not None:
            await self._quiet.stop()

    def _log_once(self, problem: str) -> None:
        """Log a problem once, however often it occurs."""
        if problem and problem != self._problem:
            log.warning("cannot fetch from node %d: %s", self.leader_id, problem)
        elif self._problem and not problem:
            log.info("fetching from node %d again", self.leader_id)
        self._problem = problem

    # -- what to fetch ---------------------------------------------------------------

    def _ask_busy(self) -> Asked:
        now = self._node.clock.monotonic()
        for partition, (until, pause) in self._paused.items():
            if until <= now:
                self._paused[partition] = (_OVER, pause)
        due = []
        for partition in self._partitions.busy:
            paused = self._paused.get(partition)
            if paused is not None and paused[0] > now:
                continue
            if self._node.is_held_back(partition):
                self._paused[partition] = (now + _HELD_BACK_SECONDS, 0.0)
                self._partitions.happened(partition, now=now)
                continue
            due.append(partition)
        return self._positions(due)

    def _ask_quiet(self) -> Asked:
        self._partitions.settle(now=self._node.clock.monotonic())
        return self._positions(self._partitions.quiet)

    def _positions(self, partitions: Iterable[ReplicatedPartition]) -> Asked:
        asked: Asked = {}
        for partition in partitions:
            position = partition.next_fetch()
            if position is None or position.leader_id != self.leader_id:
                continue
            if self._counts(partition):
                key = (partition.topic_id, partition.topic_partition.partition)
                asked[key] = (partition, position)
        return asked

    def _counts(self, partition: ReplicatedPartition) -> bool:
        """May a position be sent to the leader? If every replica syncs first, not yet: the
        records arrived on the other connection, or from another leader."""
        if partition in self._syncing:
            return False
        counted = self._node.wait_counted(partition)
        if counted is None:
            return True
        self._syncing.add(partition)
        asyncio.ensure_future(counted).add_done_callback(partial(self._synced, partition))
        return False

    def _synced(self, partition: ReplicatedPartition, done: "asyncio.Future[None]") -> None:
        self._syncing.discard(partition)
        if done.cancelled() or done.exception() is not None:
            # The disk failed, which the partition already knows, or this node stops.
            return
        self._note(partition)
        self._busy.fetch_again()

    def _next_due_seconds(self) -> float | None:
        ends = [until for until, _ in self._paused.values() if until != _OVER]
        if not ends:
            return None
        return max(min(ends) - self._node.clock.monotonic(), 0.001)

    def _next_look_seconds(self) -> float:
        return self._node.quiet_rule.after_seconds

    # -- what was fetched ------------------------------------------------------------

    async def _take(self, asked: Asked, answers: list[Fetched]) -> None:
        taken_bytes = 0
        for fetched in answers:
            found = asked.get((fetched.topic, fetched.index))
            if found is None:
                continue
            partition, position = found
            try:
                step = self._take_one(partition, position, fetched)
                if isinstance(step, CheckpointFirst):
                    await self._node.checkpoint()
            except Exception as error:
                self._skip(partition, error)
                continue
            if fetched.records:
                self._node.took(partition, len(fetched.records))
                counted = self._node.wait_counted(partition)
                if counted is not None:
                    # Without a partition that is deleted meanwhile, or whose disk fails, as it
                    # knows by itself: the others are followed all the same.
                    with suppress(KafkaError):
                        await counted
            if fetched.records or not isinstance(step, TakeRecords):
                self._note(partition)
            taken_bytes += len(fetched.records)
            if taken_bytes >= BYTES_PER_TURN:
                taken_bytes = 0
                await asyncio.sleep(0)

    def _skip(self, partition: ReplicatedPartition, error: Exception) -> None:
        """It may fail like this each time: the partitions behind it in the response are followed
        all the same."""
        if partition not in self._partitions:
            # It was left meanwhile.
            return
        problem = repr(error)
        if self._problems.get(partition) != problem:
            log.exception("cannot follow %s; it is tried again", partition.topic_partition)
        self._problems[partition] = problem
        self._pause(partition)
        self._note(partition)

    def _note(self, partition: ReplicatedPartition) -> None:
        """Something happened: a quiet partition is fetched with the busy ones, at once, because
        the leader waits for the confirmation of the records."""
        if partition not in self._partitions:
            return
        if self._partitions.happened(partition, now=self._node.clock.monotonic()):
            self._busy.fetch_again()

    def _take_one(
        self, partition: ReplicatedPartition, position: FetchPosition, fetched: Fetched
    ) -> Step:
        diverging = None
        if fetched.diverging_offset >= 0:
            diverging = Divergence(fetched.diverging_epoch, fetched.diverging_offset)
        answer = FetchAnswer(
            KafkaCode(fetched.code),
            fetched.high_watermark,
            fetched.log_start_offset,
            len(fetched.records),
            diverging,
        )
        step: Step
        try:
            step = partition.take_fetched(
                position, answer, fetched.records, self._node.clock.now_ms()
            )
        except KafkaError as error:
            if self._problems.get(partition) != str(error):
                log.warning("cannot follow %s: %s", partition.topic_partition, error)
            self._problems[partition] = str(error)
            step = BackOff(error.code)
        if isinstance(step, BackOff):
            log.debug("%s: the leader answers %s", partition.topic_partition, step.code.name)
            self._pause(partition)
        elif not isinstance(step, CheckpointFirst):
            self._paused.pop(partition, None)
            self._problems.pop(partition, None)
        return step

    def _pause(self, partition: ReplicatedPartition) -> None:
        _, last = self._paused.get(partition, (0.0, 0.0))
        longest = self._node.settings().pause_seconds_max
        pause = min(max(last * 2, PAUSE_SECONDS_MIN), longest)
        self._paused[partition] = (self._node.clock.monotonic() + pause, pause)


class ReplicaFetchers:
    """One fetcher for each node that leads something here."""

    def __init__(self, node: FetcherNode) -> None:
        self._node = node
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed: dict[ReplicatedPartition, int] = {}

    def follow(self, partition: ReplicatedPartition, leader_id: int) -> None:
        self.leave(partition, unless=leader_id)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(leader_id, self._node)
        self._followed[partition] = leader_id
        fetcher.follow(partition)

    def leave(self, partition: ReplicatedPartition, *, unless: int = -1) -> None:
        leader_id = self._followed.get(partition)
        if leader_id is not None and leader_id != unless:
            del self._followed[partition]
            self._fetchers[leader_id].leave(partition)

    async def stop(self) -> None:
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._followed.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))
