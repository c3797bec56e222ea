"""Fetches from a topic with `millstream.delivery.times.enable`: what is due, and not expired.

A fetch sends whole batches, so batches are held and left out as a whole. It ends before the
first batch with a record that is not due. It leaves out a batch once all its records
have expired. Offsets so have gaps, as after compaction, and never go back.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.delivery_times import times_of_batch
from millstream.replication.partition import Partition
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.log import FileRange
from millstream.wire.fetch import FetchRequest

# Batches are looked at here, so a fetch takes less at a time than from other topics.
_READ_BYTES_MAX: Final = 1 << 20
# So much that has expired is passed over by one fetch. The next goes on behind it.
_PASSED_BYTES_MAX: Final = 16 << 20
# More partitions than have expired records at the end of what consumers have read.
_REMEMBERED_MAX: Final = 10_000
_READ_COMMITTED: Final = 1

Found = tuple[FileRange | None, list[AbortedTransaction]]


class TimedReads:
    def __init__(self) -> None:
        # By partition and leader epoch, records from the first to before the second offset that
        # have expired: a consumer with nothing else to read asks from the first again and again.
        self._expired: dict[object, tuple[int, int]] = {}

    def read(
        self,
        partition: Partition,
        body: FetchRequest,
        offset: int,
        *,
        max_bytes: int,
        at_least_one: bool,
        now_ms: int,
    ) -> Found:
        """Raises KafkaError."""
        max_bytes = min(max_bytes, _READ_BYTES_MAX)
        key = (partition.topic_id, partition.topic_partition.partition, partition.leader_epoch)
        first, end = self._expired.get(key, (0, 0))
        wanted_from = offset
        if max(first, partition.log.log_start_offset) <= offset < end:
            offset = end
        passed_bytes = 0
        while passed_bytes < _PASSED_BYTES_MAX:
            found, aborted = _read(
                partition, body, offset, max_bytes=max_bytes, at_least_one=at_least_one
            )
            if found is None:
                break
            expired_bytes, next_offset = _expired_at_start(found, now_ms)
            if next_offset is None:
                return _due(partition, body, found, now_ms), aborted
            passed_bytes += expired_bytes
            offset = next_offset
        if offset > wanted_from:
            if len(self._expired) >= _REMEMBERED_MAX:
                self._expired.clear()
            self._expired[key] = (wanted_from, offset)
        return None, []


def _due(
    partition: Partition, body: FetchRequest, found: FileRange, now_ms: int
) -> FileRange | None:
    """The range up to the first batch that is not due, or has expired."""
    length = 0
    for batch in _batches(found):
        times = times_of_batch(batch)
        if times.due_ms > now_ms:
            if not length:
                _wake_when_due(partition, times.due_ms - now_ms, body.max_wait_ms)
            break
        if times.expired_after_ms < now_ms:
            break
        length += batch.size_bytes
    return FileRange(found.file, found.position, length) if length else None


def _wake_when_due(partition: Partition, delay_ms: int, max_wait_ms: int) -> None:
    """A fetch that waits longer than that is answered when the batch is due."""
    if delay_ms < max_wait_ms:
        # A loop timer may fire slightly early.
        seconds = (delay_ms + 2) / 1000
        asyncio.get_running_loop().call_later(seconds, partition.fetch_waits.wake)


def _read(
    partition: Partition, body: FetchRequest, offset: int, *, max_bytes: int, at_least_one: bool
) -> Found:
    if body.isolation_level == _READ_COMMITTED:
        return partition.read_committed(offset, max_bytes=max_bytes, at_least_one=at_least_one)
    return partition.read(offset, max_bytes=max_bytes, at_least_one=at_least_one), []


def _expired_at_start(found: FileRange, now_ms: int) -> tuple[int, int | None]:
    """The size of the first batches that have expired, and the offset behind them; None if the
    first has not."""
    size_bytes = 0
    next_offset: int | None = None
    for batch in _batches(found):
        if times_of_batch(batch).expired_after_ms >= now_ms:
            break
        size_bytes += batch.size_bytes
        next_offset = batch.next_offset
    return size_bytes, next_offset


def _batches(found: FileRange) -> Iterator[BatchView]:
    """The whole ones."""
    data = memoryview(found.file.read_at(found.position, found.length))
    position = 0
    while len(data) - position >= HEADER_BYTES:
        batch = BatchView(data[position:])
        if batch.size_bytes > len(data) - position:
            return
        yield batch
        position += batch.size_bytes
