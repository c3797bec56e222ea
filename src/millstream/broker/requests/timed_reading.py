"""Fetches from a topic with `millstream.delivery.times.enable`: what is due, and not expired.

A fetch sends whole batches, so batches are held and left out as a whole. It ends before the
first batch with a record that is not due. It leaves out a batch once all its records
have expired. Offsets so have gaps, as after compaction, and never go back.
"""

import asyncio
from typing import Final

from millstream.broker.requests.known_times import KnownTimes, QuickSearch, whole_batches
from millstream.records.batch import BatchView
from millstream.records.delivery_times import BatchTimes
from millstream.replication.partition import Partition
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.log import FileRange
from millstream.wire.fetch import FetchRequest

# Batches are looked at here, so a fetch takes less at a time than from other topics.
_READ_BYTES_MAX: Final = 1 << 20
# So much that has expired is passed over by one fetch. The next goes on behind it.
_PASSED_BYTES_MAX: Final = 4 << 20
# What a read counts for that passes over less: it takes time, too.
_PASSED_BYTES_MIN: Final = 1 << 19
# Batches of one read: to find the times of so many takes less than a millisecond.
_BATCHES_MAX: Final = 300
# More partitions than have expired records at the end of what consumers have read.
_REMEMBERED_MAX: Final = 10_000
_READ_COMMITTED: Final = 1

Found = tuple[FileRange | None, list[AbortedTransaction]]
Timed = tuple[BatchView, BatchTimes]


class TimedReads:
    def __init__(self) -> None:
        self.known = KnownTimes()
        # Searches for which a read has found nothing yet. A fetch clears it before it reads.
        self.awaited: list[asyncio.Task[None]] = []
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
        """Nothing while the times of the first batch are being searched; see `awaited`. Raises
        KafkaError."""
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
            batches = self._timed(partition, found)
            expired = _expired_at_start(batches, now_ms)
            if not expired:
                return _due(partition, body, found, batches, now_ms), aborted
            passed_bytes += max(sum(batch.size_bytes for batch in expired), _PASSED_BYTES_MIN)
            offset = expired[-1].next_offset
        else:
            # There is more: the client is to ask again at once.
            asyncio.get_running_loop().call_soon(partition.fetch_waits.wake)
        if offset > wanted_from:
            if len(self._expired) >= _REMEMBERED_MAX:
                self._expired.clear()
            self._expired[key] = (wanted_from, offset)
        return None, []

    def _timed(self, partition: Partition, found: FileRange) -> list[Timed]:
        """The first batches with their times, up to one whose times are not known."""
        result: list[Timed] = []
        quick_search = QuickSearch()
        for batch in whole_batches(found):
            times = self.known.find(partition, batch, quick_search)
            if times is None:
                search = self.known.search(partition, batch.base_offset)
                if not result:
                    self.awaited.append(search)
                break
            result.append((batch, times))
            if len(result) == _BATCHES_MAX:
                break
        return result


def _expired_at_start(batches: list[Timed], now_ms: int) -> list[BatchView]:
    expired = []
    for batch, times in batches:
        if times.expired_after_ms >= now_ms:
            break
        expired.append(batch)
    return expired


def _due(
    partition: Partition, body: FetchRequest, found: FileRange, batches: list[Timed], now_ms: int
) -> FileRange | None:
    """The range up to the first batch that is not due, or has expired."""
    length = 0
    for batch, times in batches:
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
