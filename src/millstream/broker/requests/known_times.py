"""The delivery times of batches that were read: found at once if that is quick, else in a thread.

To unpack and search a batch may take tens of milliseconds, and every fetch would do it again.
So a fetch gets the times of a batch if they are known or the batch is small. Otherwise it has
them searched, waits for that, and looks at the log again, which may have changed meanwhile. What
was found is kept by the place and the checksum of the batch: a batch that replaces it after a
truncation has another.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from millstream.errors import KafkaError
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.compression import TooLarge
from millstream.records.delivery_times import (
    NO_TIMES,
    BatchTimes,
    search,
    search_records,
    unpacked,
)
from millstream.records.walking import COMPILED
from millstream.replication.partition import Partition
from millstream.storage.log import FileRange

# All times that are kept. Those of one batch take less than 9 MB, as much as fit its records.
KEPT_BYTES_MAX: Final = 32 << 20
# About what Python keeps of a batch beside its times.
_ENTRY_BYTES: Final = 300
# What one look at a partition may unpack and search on the loop: well below a millisecond.
QUICK_BYTES: Final = 1 << 16 if COMPILED is not None else 1 << 11
# What a batch costs beside its bytes.
_BATCH_BYTES: Final = 1 << 10
# What is searched together, in one thread for all requests.
_READ_BYTES: Final = 1 << 20
_BATCHES_AT_ONCE: Final = 1_000
_FOUND_BYTES_AT_ONCE: Final = 4 << 20
# Others wait for the thread.
_SECONDS_AT_ONCE: Final = 0.1
# Read from a file at a time.
_CHUNK_BYTES: Final = 1 << 16

Key = tuple[object, int, int, int]


class QuickSearch:
    """How much of one look may still be searched on the loop."""

    __slots__ = ("_left_bytes",)

    def __init__(self) -> None:
        self._left_bytes = QUICK_BYTES

    def search(self, batch: BatchView) -> BatchTimes | None:
        """None if it would take too long."""
        if batch.is_control:
            return NO_TIMES
        if self._left_bytes <= 0:
            return None
        try:
            records = unpacked(batch, limit_bytes=self._left_bytes)
        except TooLarge:
            return None
        except ValueError:
            return NO_TIMES
        self._left_bytes -= len(records) + _BATCH_BYTES
        return search_records(batch, records)


class KnownTimes:
    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        # The oldest first.
        self._found: dict[Key, BatchTimes] = {}
        self.size_bytes = 0
        # One search at a time: threads that unpack compete with the loop for the processors.
        self._thread = asyncio.Lock()
        self._searches: dict[tuple[Partition, int], asyncio.Task[None]] = {}

    def find(
        self, partition: Partition, batch: BatchView, quick_search: QuickSearch
    ) -> BatchTimes | None:
        """None if they are not known, and to find them would take too long."""
        found = self._found.get(_key(partition, batch))
        return quick_search.search(batch) if found is None else found

    def search(self, partition: Partition, offset: int) -> "asyncio.Task[None]":
        """Find the times of the next batches from an offset on, of the first at least; then wake
        the fetches that wait at the partition. They look again, and find the same or something
        else."""
        where = (partition, offset)
        if where not in self._searches:
            task = asyncio.get_running_loop().create_task(self._search(partition, offset))
            self._searches[where] = task
        return self._searches[where]

    async def _search(self, partition: Partition, offset: int) -> None:
        try:
            await self._search_next(partition, offset)
        finally:
            del self._searches[partition, offset]
            partition.fetch_waits.wake()

    async def _search_next(self, partition: Partition, offset: int) -> None:
        async with self._thread:
            # Read only now: those who wait for the thread keep no memory, and the log may have
            # changed meanwhile.
            unknown = [
                batch
                for batch in _next_batches(partition, offset)
                if _key(partition, batch) not in self._found
            ]
            if unknown:
                call = partial(_search_all, unknown)
                found = await asyncio.get_running_loop().run_in_executor(None, call)
                # Not all of them, if it took long.
                for batch, times in zip(unknown, found, strict=False):
                    self._keep(_key(partition, batch), times)

    def _keep(self, key: Key, times: BatchTimes) -> None:
        found = self._found
        found[key] = times
        self.size_bytes += times.size_bytes + _ENTRY_BYTES
        while self.size_bytes > self._kept_bytes_max:
            self.size_bytes -= found.pop(next(iter(found))).size_bytes + _ENTRY_BYTES


def _key(partition: Partition, batch: BatchView) -> Key:
    number = partition.topic_partition.partition
    return partition.topic_id, number, batch.base_offset, batch.crc


def _next_batches(partition: Partition, offset: int) -> list[BatchView]:
    """Nothing if they cannot be read: the fetch looks again, and reports why."""
    try:
        partition.require_readable()
        found = partition.read(offset, max_bytes=_READ_BYTES, at_least_one=True)
        return [] if found is None else list(islice(whole_batches(found), _BATCHES_AT_ONCE))
    except (KafkaError, OSError):
        return []


def _search_all(batches: Sequence[BatchView]) -> list[BatchTimes]:
    """Of the first at least."""
    found: list[BatchTimes] = []
    ends_at = time.monotonic() + _SECONDS_AT_ONCE
    size_bytes = 0
    for batch in batches:
        found.append(search(batch))
        size_bytes += found[-1].size_bytes
        if size_bytes > _FOUND_BYTES_AT_ONCE or time.monotonic() > ends_at:
            break
    return found


def whole_batches(found: FileRange) -> Iterator[BatchView]:
    """The last of a range may be cut."""
    position, end = found.position, found.position + found.length
    data = memoryview(b"")
    while end - position >= HEADER_BYTES:
        batch = BatchView(data) if len(data) >= HEADER_BYTES else None
        if batch is not None and batch.size_bytes <= len(data):
            yield batch
            position += batch.size_bytes
            data = data[batch.size_bytes :]
            continue
        wanted = HEADER_BYTES if batch is None else batch.size_bytes
        if wanted > end - position:
            return
        length = min(max(wanted, _CHUNK_BYTES), end - position)
        data = memoryview(found.file.read_at(position, length))
        if len(data) < wanted:
            return
