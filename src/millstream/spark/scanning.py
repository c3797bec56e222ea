"""Reads segments in place, if a task can see the data directory.

The files are Kafka's, and below the high watermark they never change: the task reads from
them what a broker would send. The planner asks a broker for the offsets, so a scan never goes
further than a fetch would. If a file is not as expected (deleted by retention, rewritten, not
yet visible on a shared mount, a transaction whose end is not in the files) the scan ends
early, and the rest is fetched.
"""

import os
import struct
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.model import NO_TOPIC_ID
from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.records.control import ControlType, read_end_marker
from millstream.spark.failure import SourceError
from millstream.spark.fetching import Part
from millstream.spark.partition_files import PartitionFiles
from millstream.spark.ranges import OffsetRange
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.checkpoints import parse_partition_metadata
from millstream.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    directory_name,
    offset_file_name,
)

CHUNK_BYTES: Final = 8 << 20
_INDEX_ENTRY: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class _Segment:
    base_offset: int
    # Of the next segment; None for the one that is being written.
    next_base_offset: int | None


def scan_range(
    data_dir: Path, wanted: OffsetRange, *, is_committed_only: bool
) -> Generator[Part, None, int]:
    """The range's batches, without control batches; returns the offset that it reached."""
    folder = data_dir / directory_name(wanted.partition)
    if not _is_the_topic(folder, wanted):
        return wanted.from_offset
    scan = _Scan(folder, wanted, is_committed_only=is_committed_only)
    yield from scan.read()
    return scan.offset


def _is_the_topic(folder: Path, wanted: OffsetRange) -> bool:
    try:
        found = parse_partition_metadata((folder / PARTITION_METADATA_FILE).read_bytes())
    except (OSError, ValueError):
        # Directories of old brokers have no id; then the name must suffice.
        return folder.is_dir() and wanted.topic_id == NO_TOPIC_ID
    return wanted.topic_id in (NO_TOPIC_ID, found)


class _Scan:
    def __init__(self, folder: Path, wanted: OffsetRange, *, is_committed_only: bool) -> None:
        self.offset = wanted.from_offset
        self._folder = folder
        self._upto = wanted.upto_offset
        self._is_committed_only = is_committed_only
        self._files = PartitionFiles(folder)
        # For read_committed, from the first transaction on: by producer, in order, without those
        # that are already behind us.
        self._aborted: dict[int, deque[AbortedTransaction]] | None = None
        self._passed_on: set[int] = set()
        self._buffer = bytearray()
        self._is_stopped = False

    def read(self) -> Iterator[Part]:
        while self.offset < self._upto and not self._is_stopped:
            segment = self._segment()
            if segment is None:
                return
            try:
                yield from self._read_segment(segment)
            except FileNotFoundError:
                # Compacted between listing and opening: look again, or stop.
                if self._segment() == segment:
                    return
                continue
            if self._is_stopped or segment.next_base_offset is None:
                return
            # Offsets between the last batch and the next segment are empty.
            self.offset = max(self.offset, segment.next_base_offset)

    def _segment(self) -> _Segment | None:
        try:
            bases = self._files.segments()
        except FileNotFoundError:
            return None
        below = [base for base in bases if base <= self.offset]
        above = [base for base in bases if base > self.offset]
        if not below:
            return None
        return _Segment(below[-1], above[0] if above else None)

    def _read_segment(self, segment: _Segment) -> Iterator[Part]:
        path = self._folder / offset_file_name(segment.base_offset, LOG_SUFFIX)
        with open(path, "rb", buffering=0) as file:
            position = self._start_position(segment, file.fileno())
            while self.offset < self._upto and not self._is_stopped:
                from_offset = self.offset
                batches, read_bytes = self._read_chunk(file.fileno(), position)
                if not read_bytes:
                    return
                position += read_bytes
                kept = [batch for batch in batches if self._is_kept(batch)]
                if kept:
                    yield Part(from_offset, kept)

    def _read_chunk(self, descriptor: int, position: int) -> tuple[list[BatchView], int]:
        """Whole batches at `position`, and how many bytes they are; 0 at the end."""
        wanted_bytes = max(CHUNK_BYTES, len(self._buffer))
        while True:
            if len(self._buffer) < wanted_bytes:
                self._buffer = bytearray(wanted_bytes)
            view = memoryview(self._buffer)
            length = os.preadv(descriptor, [view], position)
            batches, used = self._take_batches(view[:length])
            is_over = self._is_stopped or self.offset >= self._upto
            if used or is_over or length < wanted_bytes:
                return batches, used
            # One batch is larger than the buffer.
            wanted_bytes *= 2

    def _take_batches(self, data: memoryview) -> tuple[list[BatchView], int]:
        batches = []
        position = 0
        while len(data) - position >= HEADER_BYTES:
            batch = BatchView(data[position:])
            if batch.magic != MAGIC or batch.size_bytes < HEADER_BYTES:
                self._is_stopped = True
                break
            if batch.size_bytes > len(data) - position:
                break
            if batch.base_offset >= self._upto:
                self.offset = self._upto
                break
            is_new = batch.last_offset >= self.offset
            if is_new and batch.is_transactional and not self._knows_aborted():
                self._is_stopped = True
                break
            position += batch.size_bytes
            if is_new:
                batches.append(batch)
                self.offset = batch.next_offset
        return batches, position

    def _knows_aborted(self) -> bool:
        """Whether the files show which transactions were aborted, if that matters."""
        if self._is_committed_only and self._aborted is None:
            try:
                found = self._files.aborted(self.offset, self._upto)
            except FileNotFoundError:
                return False
            if found is None:
                return False
            self._aborted = {}
            for aborted in found:
                self._aborted.setdefault(aborted.producer_id, deque()).append(aborted)
        return True

    def _is_kept(self, batch: BatchView) -> bool:
        if batch.is_control:
            self._check_end(batch)
            return False
        if not batch.is_transactional or self._aborted is None:
            return True
        waiting = self._aborted.get(batch.producer_id, deque())
        while waiting and waiting[0].last_offset < batch.base_offset:
            waiting.popleft()
        if waiting and waiting[0].first_offset <= batch.base_offset:
            return False
        self._passed_on.add(batch.producer_id)
        return True

    def _check_end(self, batch: BatchView) -> None:
        """Rows of an aborted transaction must not have been passed on before its marker."""
        if batch.producer_id in self._passed_on:
            self._passed_on.discard(batch.producer_id)
            marker = read_end_marker(batch)
            if marker is not None and marker.type is ControlType.ABORT:
                raise SourceError(
                    "INDEX_IS_INCOMPLETE",
                    f"{self._folder} does not list the transaction that was aborted at offset "
                    f"{batch.base_offset}. Read it through a broker, without 'path'",
                )

    def _start_position(self, segment: _Segment, descriptor: int) -> int:
        """Where to begin for the offset: by the index, if it is right."""
        name = offset_file_name(segment.base_offset, INDEX_SUFFIX)
        try:
            entries = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return 0
        relative = self.offset - segment.base_offset
        low, high = 0, len(entries) // _INDEX_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            last, position = _INDEX_ENTRY.unpack_from(entries, middle * _INDEX_ENTRY.size)
            # Preallocated entries after the last one are zero.
            is_padding = middle > 0 and position == 0
            if not is_padding and last <= relative:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0
        last, position = _INDEX_ENTRY.unpack_from(entries, (low - 1) * _INDEX_ENTRY.size)
        header = os.pread(descriptor, HEADER_BYTES, position)
        if len(header) < HEADER_BYTES:
            return 0
        batch = BatchView(memoryview(header))
        is_true = batch.magic == MAGIC and batch.last_offset == segment.base_offset + last
        return position if is_true else 0
