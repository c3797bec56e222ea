"""Writes the in-sync replicas of this node's leaderships, by the rules in `isr`.

A follower that has caught up is proposed at once, one that falls behind at the next check.
One proposal per partition at a time; the store's answer decides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from millstream.clock import Clock
from millstream.cluster.stores.store import CoordinationFailed
from millstream.model import TopicPartition
from millstream.replication.isr import IsrChange
from millstream.replication.leadership import Leadership
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role

log = logging.getLogger(__name__)


class NotWritten(Exception):
    """The store refused the change: another writer was faster. Nothing was written."""


class IsrProposer:
    """`write` returns the state after it, or raises NotWritten, or CoordinationFailed if the
    outcome is unknown."""

    def __init__(
        self,
        write: Callable[[TopicPartition, IsrChange], Awaitable[Role]],
        *,
        alive: Callable[[], Mapping[int, int]],
        has_lease: Callable[[], bool],
        lag_ms_max: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._write = write
        self._alive = alive
        self._has_lease = has_lease
        self._lag_ms_max = lag_ms_max
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def look_at(self, partition: ReplicatedPartition) -> None:
        """Propose the change that the leader wants, if there is one and it may."""
        leadership = partition.leadership
        if leadership is None or leadership.pending is not None or not self._has_lease():
            return
        change = leadership.wanted_change(
            high_watermark=partition.log.high_watermark,
            end_offset=partition.log.next_offset,
            alive=self._alive(),
            lag_ms_max=self._lag_ms_max(),
            now_ms=self._now_ms(),
        )
        if change is None:
            return
        leadership.propose(change)
        task = asyncio.get_running_loop().create_task(self._propose(partition, leadership, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _propose(
        self, partition: ReplicatedPartition, leadership: Leadership, change: IsrChange
    ) -> None:
        where = partition.topic_partition
        log.info("in-sync replicas of %s: %s -> %s", where, leadership.isr, change.isr)
        try:
            role = await self._write(where, change)
        except NotWritten as error:
            log.info("in-sync replicas of %s stay as they are: %s", where, error)
            leadership.withdraw(change)
            # Records may have waited for a replica that does not join.
            if leadership is partition.leadership:
                partition.advance()
        except CoordinationFailed as error:
            # It may have been written: it counts as pending until the state is read again.
            log.warning("it is not known whether %s was written: %s", where, error)
        else:
            if leadership is partition.leadership:
                partition.apply(role, now_ms=self._now_ms())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
