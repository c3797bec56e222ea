"""Following one other node: a task that fetches everything this node follows there.

One connection, one request at a time, all partitions in it. A partition that fails is left
out for a while and the others go on. Partitions that are added do not wait for a long poll
to end: the connection is closed and the next request has them.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.replication.following import (
    BackOff,
    CheckpointFirst,
    FetchAnswer,
    FetchPosition,
    Step,
)
from millstream.replication.leadership import Divergence
from millstream.replication.link import Link, LinkFailed
from millstream.replication.replicated import ReplicatedPartition
from millstream.wire.apis import ApiKey
from millstream.wire.fetch import FetchPartition
from millstream.wire.replica_fetch import (
    VERSION,
    ReplicaFetched,
    read_replica_fetched,
    write_replica_fetch,
)

log = logging.getLogger(__name__)

# Taken in one turn of the loop; then others get their turn.
BYTES_PER_TURN: Final = 256 << 10
# The first pause after a failure; each further one is twice as long.
_PAUSE_SECONDS_MIN: Final = 0.02
_CONNECT_SECONDS_MAX: Final = 5.0
# A partition that is throttled is looked at again after this.
_HELD_BACK_SECONDS: Final = 0.1

Asked = dict[tuple[uuid.UUID, int], tuple[ReplicatedPartition, FetchPosition]]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes: int = 1 << 20
    response_bytes: int = 10 << 20
    timeout_seconds: float = 30.0
    pause_seconds_max: float = 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a fetcher asks of its node, new at every request."""

    broker_id: int
    broker_epoch: Callable[[], int]
    # Where the leader's node listens; None while that is not known.
    address: Callable[[int], tuple[str, int] | None]
    checkpoint: Callable[[], Awaitable[None]]
    # Is a partition held back at this moment; and what was taken of it.
    is_held_back: Callable[[ReplicatedPartition], bool]
    took: Callable[[ReplicatedPartition, int], None]
    # Before a position counts, where every replica syncs first.
    wait_counted: Callable[[ReplicatedPartition], Awaitable[None] | None]
    clock: Clock
    settings: Callable[[], FetcherSettings]


class Fetcher:
    def __init__(self, leader_id: int, surroundings: Surroundings) -> None:
        self.leader_id = leader_id
        self._node = surroundings
        self._partitions: dict[ReplicatedPartition, None] = {}
        # When each that failed may be asked for again, and how long the last pause was.
        self._paused: dict[ReplicatedPartition, tuple[float, float]] = {}
        self._changed = asyncio.Event()
        self._link: Link | None = None
        self._pause_seconds = _PAUSE_SECONDS_MIN
        self._problem = ""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def follow(self, partition: ReplicatedPartition) -> None:
        """Take part from the next request on; again, where it is known but has a new epoch."""
        self._partitions[partition] = None
        self._paused.pop(partition, None)
        self._changed.set()

    def leave(self, partition: ReplicatedPartition) -> None:
        self._partitions.pop(partition, None)
        self._paused.pop(partition, None)

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                await self._step()
        finally:
            self._hang_up()

    async def _step(self) -> None:
        self._changed.clear()
        asked = self._ask()
        if not asked:
            await self._sleep(self._next_due_seconds())
            return
        try:
            answers = await self._exchange(asked)
        except (LinkFailed, ProtocolError) as error:
            self._hang_up()
            self._tell(str(error))
            await self._sleep(self._pause_seconds)
            longest = self._node.settings().pause_seconds_max
            self._pause_seconds = min(self._pause_seconds * 2, longest)
            return
        if answers is not None:
            self._pause_seconds = _PAUSE_SECONDS_MIN
            self._tell("")
            await self._take(asked, answers)

    def _tell(self, problem: str) -> None:
        """A person is told once, however often it is tried."""
        if problem and problem != self._problem:
            log.warning("cannot fetch from node %d: %s", self.leader_id, problem)
        elif self._problem and not problem:
            log.info("fetches from node %d again", self.leader_id)
        self._problem = problem

    # -- asking -----------------------------------------------------------------------

    def _ask(self) -> Asked:
        now = self._node.clock.monotonic()
        asked: Asked = {}
        for partition in list(self._partitions):
            paused = self._paused.get(partition)
            if paused is not None and paused[0] > now:
                continue
            position = partition.next_fetch()
            if position is None or position.leader_id != self.leader_id:
                continue
            if self._node.is_held_back(partition):
                self._paused[partition] = (now + _HELD_BACK_SECONDS, 0.0)
                continue
            key = (partition.topic_id, partition.topic_partition.partition)
            asked[key] = (partition, position)
        return asked

    def _next_due_seconds(self) -> float | None:
        if not self._paused:
            return None
        now = self._node.clock.monotonic()
        return max(min(due for due, _ in self._paused.values()) - now, 0.001)

    async def _sleep(self, seconds: float | None) -> None:
        """Until something changes, at most that long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _exchange(self, asked: Asked) -> list[ReplicaFetched] | None:
        """The answers; None when other partitions came meanwhile and all is asked anew."""
        settings = self._node.settings()
        link = await self._connected()
        due = self._next_due_seconds()
        wait_ms = settings.wait_ms if due is None else min(settings.wait_ms, int(due * 1000))
        out = link.begin(ApiKey.FETCH, VERSION)
        write_replica_fetch(
            out,
            _by_topic(asked, settings.partition_bytes),
            replica_id=self._node.broker_id,
            broker_epoch=self._node.broker_epoch(),
            max_wait_ms=max(wait_ms, 0),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes,
        )
        exchange = asyncio.ensure_future(
            link.exchange(out, is_flexible=True, timeout_seconds=settings.timeout_seconds)
        )
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([exchange, changed], return_when=asyncio.FIRST_COMPLETED)
            if exchange.done():
                return list(read_replica_fetched(exchange.result()))
        finally:
            changed.cancel()
            if not exchange.done():
                exchange.cancel()
                await asyncio.gather(exchange, return_exceptions=True)
                self._hang_up()
        return None

    async def _connected(self) -> Link:
        if self._link is None:
            address = self._node.address(self.leader_id)
            if address is None:
                raise LinkFailed("its address is not known")
            self._link = await Link.connect(
                *address,
                client_id=f"replica-{self._node.broker_id}",
                timeout_seconds=_CONNECT_SECONDS_MAX,
            )
        return self._link

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # -- taking -----------------------------------------------------------------------

    async def _take(self, asked: Asked, answers: list[ReplicaFetched]) -> None:
        taken_bytes = 0
        for fetched in answers:
            found = asked.get((fetched.topic_id, fetched.index))
            if found is None:
                continue
            partition, position = found
            step = self._take_one(partition, position, fetched)
            if isinstance(step, CheckpointFirst):
                await self._node.checkpoint()
            if fetched.records:
                self._node.took(partition, len(fetched.records))
                # Those that got something go last: the answer has a limit.
                if partition in self._partitions:
                    self._partitions[partition] = self._partitions.pop(partition)
                counted = self._node.wait_counted(partition)
                if counted is not None:
                    await counted
            taken_bytes += len(fetched.records)
            if taken_bytes >= BYTES_PER_TURN:
                taken_bytes = 0
                await asyncio.sleep(0)

    def _take_one(
        self, partition: ReplicatedPartition, position: FetchPosition, fetched: ReplicaFetched
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
            step = partition.take_fetched(position, answer, fetched.records)
        except KafkaError as error:
            log.warning("cannot follow %s: %s", partition.topic_partition, error)
            step = BackOff(error.code)
        if isinstance(step, BackOff):
            log.debug("%s: the leader answers %s", partition.topic_partition, step.code.name)
            self._pause(partition)
        else:
            self._paused.pop(partition, None)
        return step

    def _pause(self, partition: ReplicatedPartition) -> None:
        _, last = self._paused.get(partition, (0.0, 0.0))
        longest = self._node.settings().pause_seconds_max
        pause = min(max(last * 2, _PAUSE_SECONDS_MIN), longest)
        self._paused[partition] = (self._node.clock.monotonic() + pause, pause)


def _by_topic(asked: Asked, partition_bytes: int) -> list[tuple[uuid.UUID, list[FetchPartition]]]:
    topics: dict[uuid.UUID, list[FetchPartition]] = {}
    for (topic_id, index), (partition, position) in asked.items():
        topics.setdefault(topic_id, []).append(
            FetchPartition(
                index,
                position.offset,
                partition_bytes,
                position.leader_epoch,
                position.last_epoch,
                partition.log.log_start_offset,
            )
        )
    return list(topics.items())


class Fetchers:
    """One fetcher for each node that leads something here."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._node = surroundings
        self._fetchers: dict[int, Fetcher] = {}
        self._followed: dict[ReplicatedPartition, int] = {}

    def follow(self, partition: ReplicatedPartition, leader_id: int) -> None:
        self.leave(partition, unless=leader_id)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(leader_id, self._node)
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
