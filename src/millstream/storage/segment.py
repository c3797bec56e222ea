"""One segment: a .log file and the sparse indexes that find things in it.

A segment holds batches with offsets from `base_offset` on, in order. The .log file is the
only source of truth. The indexes are a cache that may be lost, cut or wrong: an entry is
used only after a check of the batch it points at, and a bad entry causes a rebuild of the
index from the log.

Knows files and batches. Does not know partitions, replication, or the time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.storage import offset_index, time_index
from millstream.storage.aborted_index import AbortedIndex
from millstream.storage.files import LogFile
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex
from millstream.storage.values import BatchGroup, CorruptLog

# Offsets in the indexes are relative and 31 bits wide.
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_CHUNK_BYTES: Final = 8192
# The newest batches are found without any index; most consumers read there.
_RECENT_MAX: Final = 128
# A healthy index leaves one interval between entries. Other writers may have used another
# interval, so only a gap of many is suspicious.
_GAP_INTERVALS_MAX: Final = 16
_COVER_BYTES_MAX: Final = 1 << 20


class Segment:
    __slots__ = (
        "_found_end",
        "_has_rebuilt",
        "_is_max_timestamp_known",
        "_recent_first_offset",
        "_recent_last_offsets",
        "_recent_positions",
        "aborted",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "file",
        "first_timestamp_ms",
        "index",
        "index_entries",
        "index_interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "modified_ms",
        "times",
    )

    def __init__(
        self,
        base_offset: int,
        file: LogFile,
        index: OffsetIndex,
        times: TimeIndex,
        aborted: AbortedIndex,
        *,
        index_interval_bytes: int,
        created_ms: int,
        modified_ms: int,
    ) -> None:
        self.base_offset = base_offset
        self.file = file
        self.index = index
        self.times = times
        self.aborted = aborted
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        self.modified_ms = modified_ms
        self.bytes_since_entry = 0
        self.index_entries = 0
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset
        self._is_max_timestamp_known = file.size_bytes == 0
        # Of the first batch; the age of a segment counts from it. None until known.
        self.first_timestamp_ms: int | None = None
        self._has_rebuilt = False
        self._recent_last_offsets: list[int] = []
        self._recent_positions: list[int] = []
        self._recent_first_offset = 0
        # The next offset after the batch that was found last, and its position: a reader that goes
        # on there needs no index.
        self._found_end = (-1, 0)

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes

    # Writing

    def note_appended(self, batch: BatchView, position: int) -> None:
        """Index a batch that was written at `position`, the end of the file until then."""
        last_offset = batch.base_offset + batch.last_offset_delta
        if batch.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = batch.max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp_ms = batch.max_timestamp_ms
        if self.bytes_since_entry > self.index_interval_bytes:
            self.index.append(last_offset=last_offset, position=position)
            self.times.append_if_newer(
                timestamp_ms=self.max_timestamp_ms, offset=self.max_timestamp_offset
            )
            self.index_entries += 1
            self.bytes_since_entry = 0
        self.bytes_since_entry += batch.size_bytes
        positions = self._recent_positions
        if not positions:
            self._recent_first_offset = batch.base_offset
        positions.append(position)
        self._recent_last_offsets.append(last_offset)
        if len(positions) > _RECENT_MAX:
            self._drop_oldest_recent()

    def note_group(self, group: BatchGroup, base_offset: int, position: int) -> None:
        """As `note_appended`, for batches that were written together; at most one entry."""
        positions, last_offsets = group.positions(position), group.last_offsets(base_offset)
        if self.bytes_since_entry > self.index_interval_bytes:
            self.index.append(last_offset=last_offsets[0], position=position)
            # Counts the bytes before the group: the entry covers nothing after its offset.
            self.times.append_if_newer(
                timestamp_ms=self.max_timestamp_ms, offset=self.max_timestamp_offset
            )
            self.index_entries += 1
            self.bytes_since_entry = 0
        if group.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = group.max_timestamp_ms
            self.max_timestamp_offset = base_offset + group.max_timestamp_delta
        self.bytes_since_entry += group.size_bytes
        if not self._recent_positions:
            self._recent_first_offset = base_offset
        self._recent_positions += positions
        self._recent_last_offsets += last_offsets
        if len(self._recent_positions) > _RECENT_MAX:
            self._drop_oldest_recent()

    def _drop_oldest_recent(self) -> None:
        half = _RECENT_MAX // 2
        self._recent_first_offset = self._recent_last_offsets[half - 1] + 1
        del self._recent_positions[:half]
        del self._recent_last_offsets[:half]

    def finish(self) -> None:
        """Bring the files to the state in which Kafka leaves a rolled or closed segment."""
        self.read_max_timestamp()
        if self.max_timestamp_ms >= 0:
            self.times.append_if_newer(
                timestamp_ms=self.max_timestamp_ms, offset=self.max_timestamp_offset
            )
        self.flush_indexes()

    def forget_recent(self) -> None:
        self._recent_positions.clear()
        self._recent_last_offsets.clear()
        self._found_end = (-1, 0)

    def flush_indexes(self) -> None:
        self.index.entries.flush()
        self.times.entries.flush()
        if self.aborted.entries.count:
            self.aborted.entries.flush()

    def prepare_truncation(self, position: int, next_offset: int) -> None:
        """Read what `truncate` needs. If that fails, the indexes may lack their newest entries;
        everything else is as it was."""
        self.index.truncate_to_position(position)
        self.times.truncate_to_offset(next_offset)
        self._load_tail_before(position)

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the file at a batch boundary; `next_offset` is where it then ends. Once it has begun,
        it must not fail and be tried again later. Call `prepare_truncation` before."""
        self.file.truncate(position)
        self.forget_recent()
        self.aborted.truncate_to_offset(next_offset)
        self.first_timestamp_ms = None

    # Reading

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchView]]:
        """Position and header of each batch from `position`, a batch boundary, to the end of the
        file or to another boundary.

        The views hold the header only, not the records.
        """
        if end is None:
            end = self.file.size_bytes
        chunk = memoryview(b"")
        chunk_start = 0
        while position < end:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk = memoryview(self.file.read_at(position, _CHUNK_BYTES))
                chunk_start, at = position, 0
                if len(chunk) < HEADER_BYTES:
                    raise self._damaged(position)
            batch = BatchView(chunk[at : at + HEADER_BYTES])
            size = batch.size_bytes
            if size < HEADER_BYTES or position + size > end or batch.magic != MAGIC:
                raise self._damaged(position)
            yield position, batch
            position += size

    def _damaged(self, position: int) -> CorruptLog:
        return CorruptLog(f"{self.file.path}: no intact batch at position {position}")

    def read_batch(self, position: int, size_bytes: int) -> BatchView:
        """A whole batch, including its records."""
        data = self.file.read_at(position, size_bytes)
        if len(data) != size_bytes:
            raise self._damaged(position)
        return BatchView(memoryview(data))

    def find(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the first batch that ends at or after `offset`."""
        recent = self._recent_last_offsets
        if recent and offset >= self._recent_first_offset:
            number = bisect_left(recent, offset)
            if number == len(recent):
                return None
            positions = self._recent_positions
            position = positions[number]
            after = number + 1
            end = positions[after] if after < len(positions) else self.file.size_bytes
            return position, end - position
        next_offset, start = self._found_end
        if offset != next_offset:
            start = self._verified_start(offset)
        for position, batch in self.headers(start):
            if batch.last_offset >= offset:
                self._found_end = (batch.next_offset, position + batch.size_bytes)
                return position, batch.size_bytes
            if position - start > self._gap_bytes_max() and self._rebuild_once():
                return self.find(offset)
        return None

    def whole_batches_bytes(self, position: int, length: int) -> int:
        """A range that begins with a whole batch, without the part of one at its end; or as it
        is, where the batches are too old to be remembered."""
        positions = self._recent_positions
        if not positions or position < positions[0]:
            return length
        end = positions[bisect_right(positions, position + length) - 1]
        return end - position if end > position else length

    def _verified_start(self, offset: int) -> int:
        """A batch boundary at or before the batch that holds `offset`."""
        entry = self.index.lookup(offset)
        if entry is None:
            return 0
        if self._entry_fits(*entry):
            return entry[1]
        if self._rebuild_once():
            return self._verified_start(offset)
        return 0

    def _entry_fits(self, entry_offset: int, position: int) -> bool:
        if not 0 <= position <= self.file.size_bytes - HEADER_BYTES:
            return False
        header = self.file.read_at(position, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return False
        batch = BatchView(memoryview(header))
        if (
            batch.magic != MAGIC
            or batch.size_bytes < HEADER_BYTES
            or position + batch.size_bytes > self.file.size_bytes
            or batch.base_offset < self.base_offset
            or not 0 <= batch.last_offset_delta <= RELATIVE_OFFSET_MAX
        ):
            return False
        if batch.last_offset == entry_offset:
            return True
        # Kafka before 4.0 made one entry for several batches appended together: the last
        # offset of all and the position of the first. Bytes that only look like a header
        # could pass for that, so the checksum decides here.
        if batch.base_offset > entry_offset:
            return False
        return self.read_batch(position, batch.size_bytes).crc_is_valid()

    def offset_not_before(self, position: int) -> int | None:
        """The last offset of some batch at or after `position`; None if no entry has one."""
        entry = self.index.first_from(position)
        return entry[0] if entry is not None and self._entry_fits(*entry) else None

    def headers_since(
        self, timestamp_ms: int, *, from_offset: int
    ) -> Iterator[tuple[int, BatchView]]:
        """As `headers`, from a batch before which none from `from_offset` on has a record at or
        after `timestamp_ms`."""
        start = self._verified_time_start(timestamp_ms)
        if from_offset > self.base_offset:
            found = self.find(from_offset)
            if found is None:
                return iter(())
            start = max(start, found[0])
        return self.headers(start)

    def _verified_time_start(self, timestamp_ms: int) -> int:
        entry = self.times.lookup_before(timestamp_ms)
        if entry is None:
            return 0
        found = self._find_time_entry(*entry)
        if found is not None:
            return found
        if self._rebuild_once():
            return self._verified_time_start(timestamp_ms)
        return 0

    def _find_time_entry(self, timestamp_ms: int, offset: int) -> int | None:
        """The position of the batch that a time entry points at, if that batch agrees."""
        if offset < self.base_offset:
            return None
        found = self.find(offset)
        if found is None:
            return None
        position, _ = found
        batch = next(self.headers(position))[1]
        if batch.base_offset > offset or batch.max_timestamp_ms != timestamp_ms:
            return None
        return position

    def read_max_timestamp(self) -> int:
        """The largest timestamp in the segment; -1 if there is none."""
        if self._is_max_timestamp_known:
            return self.max_timestamp_ms
        newest = self.times.last()
        if newest is not None and self._covers(newest, end=self.size_bytes):
            self.max_timestamp_ms, self.max_timestamp_offset = newest
            self._is_max_timestamp_known = True
        else:
            self.rebuild_indexes()
        return self.max_timestamp_ms

    def _covers(self, entry: tuple[int, int], *, end: int) -> bool:
        """Whether a time entry is right and nothing after it, up to `end`, is newer.

        If entries after it were lost, the batches that follow are usually newer, so a check of the
        next megabyte is enough.
        """
        timestamp_ms, offset = entry
        start = self._find_time_entry(timestamp_ms, offset)
        if start is None:
            return False
        for position, batch in self.headers(start):
            if position >= end or position - start > _COVER_BYTES_MAX:
                return True
            if batch.max_timestamp_ms > timestamp_ms:
                return False
        return True

    def read_first_timestamp(self) -> int:
        """The timestamp of the first batch; -1 if the segment is empty."""
        if self.first_timestamp_ms is None:
            if self.size_bytes == 0:
                return -1
            self.first_timestamp_ms = next(self.headers())[1].max_timestamp_ms
        return self.first_timestamp_ms

    # Loading and repair

    def load_tail(self) -> BatchView | None:
        """Learn what an appender needs, from the last index entry on; return the last batch.

        Raises CorruptLog if the file does not end with a whole batch.
        """
        return self._load_tail_before(self.size_bytes)

    def _load_tail_before(self, end: int) -> BatchView | None:
        """As `load_tail`, for a file that will end at `end`. The indexes already do."""
        last = self.index.last()
        if last is not None and not (self._entry_fits(*last) and self._rest_is_short(last[1], end)):
            return self._rebuild_indexes_before(end)
        if last is None and end > self._gap_bytes_max():
            return self._rebuild_indexes_before(end)
        start = 0 if last is None else last[1]
        newest = self.times.last()
        if newest is None and start:
            return self._rebuild_indexes_before(end)
        if newest is not None and not self._covers(newest, end=start):
            return self._rebuild_indexes_before(end)
        if (self.index.last(), self.times.last()) != (last, newest):
            # That check found damage, and has rebuilt them from the whole file.
            return self._rebuild_indexes_before(end)
        self.times.load()
        max_timestamp_ms, max_timestamp_offset = newest or (-1, self.base_offset)
        batch = None
        for _, batch in self.headers(start, end):
            if batch.max_timestamp_ms > max_timestamp_ms:
                max_timestamp_ms = batch.max_timestamp_ms
                max_timestamp_offset = batch.last_offset
        self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, max_timestamp_offset
        self._is_max_timestamp_known = True
        self.bytes_since_entry = end - start
        self.index_entries = self.index.count
        return batch

    def _gap_bytes_max(self) -> int:
        return _GAP_INTERVALS_MAX * self.index_interval_bytes

    def _rest_is_short(self, position: int, end: int) -> bool:
        """Whether the log after the last entry is what an index may leave uncovered."""
        if end - position <= self._gap_bytes_max():
            return True
        batch = next(self.headers(position))[1]
        return end - position - batch.size_bytes <= self._gap_bytes_max()

    def _rebuild_once(self) -> bool:
        """Rebuild the indexes, unless that was already done: then they are right."""
        if self._has_rebuilt:
            return False
        self.rebuild_indexes()
        return True

    def rebuild_indexes(self) -> BatchView | None:
        """Read all headers and write both indexes as if appended now; return the last batch."""
        return self._rebuild_indexes_before(self.size_bytes)

    def _rebuild_indexes_before(self, end: int) -> BatchView | None:
        self._has_rebuilt = True
        builder = IndexBuilder(self.base_offset, self.index_interval_bytes)
        batch = None
        for position, batch in self.headers(0, end):
            builder.add(position, batch.size_bytes, batch.last_offset, batch.max_timestamp_ms)
        self.adopt_indexes(builder)
        return batch

    def adopt_indexes(self, builder: "IndexBuilder") -> None:
        self.index.entries.replace(bytes(builder.index))
        self.times.replace(builder.finished_times())
        self.index_entries = len(builder.index) // offset_index.ENTRY_BYTES
        self.bytes_since_entry = builder.bytes_since_entry
        self.max_timestamp_ms = builder.max_timestamp_ms
        self.max_timestamp_offset = builder.max_timestamp_offset
        self._is_max_timestamp_known = True
        self._has_rebuilt = True

    # Removing

    @property
    def all_files(self) -> list[LogFile]:
        return [
            self.file,
            self.index.entries.file,
            self.times.entries.file,
            self.aborted.entries.file,
        ]

    def close(self) -> None:
        for file in self.all_files:
            file.close()


class IndexBuilder:
    """The entries that appending these batches would have made."""

    __slots__ = (
        "_base_offset",
        "_interval_bytes",
        "_last_timestamp_ms",
        "bytes_since_entry",
        "index",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "times",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._last_timestamp_ms = -1
        self.index = bytearray()
        self.times = bytearray()
        self.bytes_since_entry = 0
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset

    def add(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """The next batch, as the needed fields: recovery adds a hundred thousand a second."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self._interval_bytes:
            relative = last_offset - self._base_offset
            self.index += offset_index.ENTRY.pack(relative, position)
            if self.max_timestamp_ms > self._last_timestamp_ms:
                newest = self.max_timestamp_offset - self._base_offset
                self.times += time_index.ENTRY.pack(self.max_timestamp_ms, newest)
                self._last_timestamp_ms = self.max_timestamp_ms
            self.bytes_since_entry = 0
        self.bytes_since_entry += size_bytes

    def finished_times(self) -> bytes:
        """The time index with its last entry, which has the segment's largest timestamp."""
        if self.max_timestamp_ms <= self._last_timestamp_ms:
            return bytes(self.times)
        newest = self.max_timestamp_offset - self._base_offset
        return bytes(self.times) + time_index.ENTRY.pack(self.max_timestamp_ms, newest)
