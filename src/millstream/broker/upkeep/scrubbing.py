"""Reads the logs of a node again, slowly: a disk can change bytes that no client reads.

After a start, and then at an interval, it reads every batch of every partition and compares
its checksum, at a limited rate. A record that a client could not use, or that this node
could not read, is checked first and at once. The bytes are read off the loop; pages that
were not in the page cache before are not there afterwards either.

Finds damage and reports it. Other code decides what to do about it.
"""

import asyncio
import errno
import logging
import os
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.model import TopicPartition
from millstream.replication.replicated import ReplicatedPartition
from millstream.storage import page_cache
from millstream.storage.scan import SegmentScan
from millstream.storage.segment import Segment

log = logging.getLogger(__name__)

# Checked on the loop at a time: with the smallest batches, some milliseconds.
_WINDOW_BYTES: Final = 128 << 10
# Between two segments, however small: thousands of them must not become one burst.
_PAUSE_SECONDS_MIN: Final = 0.005
# For a suspected offset, its segment and the next one are read.
_DOUBTED_SEGMENTS: Final = 2
# After a suspicion was checked, others about the same partition wait this long.
_REST_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 60.0

# Returns whether something was done about it.
OnDamage = Callable[[ReplicatedPartition, str], Awaitable[bool]]


class Scrubbing:
    def __init__(self, node: NodeState, on_damage: OnDamage) -> None:
        self._node = node
        self._on_damage = on_damage
        # Suspected offsets. One per partition is enough: if damage is found, all of it is replaced.
        self._doubts: dict[TopicPartition, int] = {}
        # Damage that cannot be healed is found again by every reader.
        self._rests_until: dict[TopicPartition, float] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def doubt(self, where: TopicPartition, offset: int) -> None:
        """A client could not use, or this node could not read, what is at `offset`."""
        if self._node.clock.monotonic() >= self._rests_until.get(where, 0.0):
            self._doubts.setdefault(where, offset)
            self._wake.set()

    # -- when -------------------------------------------------------------------------

    async def _run(self) -> None:
        clock = self._node.clock
        due = clock.monotonic()
        while True:
            await self._look_at_doubts()
            if self._rate == 0:
                await self._wait(None)
            elif clock.monotonic() < due:
                await self._wait(due - clock.monotonic())
            else:
                interval_ms = self._node.config.int("millstream.scrub.interval.ms")
                due = clock.monotonic() + interval_ms / 1000
                await self._look_at_all()

    @property
    def _rate(self) -> int:
        return self._node.config.int("millstream.scrub.bytes.per.second")

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a suspicion, or until it is time for the next round."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _look_at_all(self) -> None:
        for partition in list(self._node.partitions):
            if not isinstance(partition, ReplicatedPartition):
                continue
            for segment in list(partition.log.segments):
                await self._look_at_doubts()
                if not await self._look_at(partition, segment, is_paced=True):
                    break

    async def _look_at_doubts(self) -> None:
        self._wake.clear()
        while self._doubts:
            where, offset = self._doubts.popitem()
            partition = self._node.partitions.find(where.topic, where.partition)
            if not isinstance(partition, ReplicatedPartition):
                continue
            for segment in _segments_at(partition.log.segments, offset):
                if not await self._look_at(partition, segment, is_paced=False):
                    break
            self._rests_until[where] = self._node.clock.monotonic() + _REST_SECONDS

    # -- one segment ------------------------------------------------------------------

    async def _look_at(
        self, partition: ReplicatedPartition, segment: Segment, *, is_paced: bool
    ) -> bool:
        """False if damage was found, or the partition is gone."""
        if not self._is_here(partition):
            return False
        problem = await self._find_problem(segment, is_paced=is_paced)
        if problem is None or not self._has(partition, segment):
            return True
        # Read twice with the same result; otherwise the file was changed during the read.
        if await self._find_problem(segment, is_paced=False) != problem:
            return True
        if not self._has(partition, segment):
            return True
        if not await self._on_damage(partition, problem) and len(partition.role.replicas) > 1:
            # No replica could take its place; that may change long before the next round.
            asyncio.get_running_loop().call_later(
                _RETRY_SECONDS, self.doubt, partition.topic_partition, segment.base_offset
            )
        return False

    def _is_here(self, partition: ReplicatedPartition) -> bool:
        where = partition.topic_partition
        is_known = self._node.partitions.find(where.topic, where.partition) is partition
        return is_known and partition.offline_reason is None

    def _has(self, partition: ReplicatedPartition, segment: Segment) -> bool:
        """Compaction and retention replace segments."""
        return self._is_here(partition) and segment in partition.log.segments

    async def _find_problem(self, segment: Segment, *, is_paced: bool) -> str | None:
        scan = SegmentScan(segment, segment.base_offset, -1)
        try:
            descriptor = segment.file.pin()
        except OSError as error:
            return _problem_of(error, segment, 0)
        try:
            while not scan.is_over:
                position, length = scan.next_window(_WINDOW_BYTES)
                scan.take(await self._read(descriptor, position, length))
                await self._pause(length, is_paced=is_paced)
        except OSError as error:
            return _problem_of(error, segment, scan.end_position)
        finally:
            segment.file.unpin()
        if scan.problem is None:
            return None
        place = f"position {scan.end_position}, offset {scan.next_offset}"
        return f"{segment.file.path}, {place}: {scan.problem}"

    async def _read(self, descriptor: int, position: int, length: int) -> bytes:
        was_cached = page_cache.is_cached(descriptor, position, length)
        run = asyncio.get_running_loop().run_in_executor
        data = await run(None, os.pread, descriptor, length, position)
        if not was_cached:
            os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_DONTNEED)
        return data

    async def _pause(self, read_bytes: int, *, is_paced: bool) -> None:
        if is_paced:
            await asyncio.sleep(max(read_bytes / max(self._rate, 1), _PAUSE_SECONDS_MIN))


def _segments_at(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The segment that holds `offset`, and the next."""
    number = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    return segments[max(number, 0) :][:_DOUBTED_SEGMENTS]


def _problem_of(error: OSError, segment: Segment, position: int) -> str | None:
    """A read error of the disk is damage; a file that is gone or cannot be opened is not."""
    if error.errno != errno.EIO:
        return None
    return f"{segment.file.path}, position {position}: {error.strerror}"
