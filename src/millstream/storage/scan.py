"""Checking every byte of a segment, and looking for intact batches in damaged ones."""

import re
from typing import Final

from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.storage.files import LogFile
from millstream.storage.segment import RELATIVE_OFFSET_MAX, IndexBuilder, Segment

_WINDOW_BYTES: Final = 1 << 20


class SegmentScan:
    """One pass over a segment. Afterwards `problem` says what stopped it, if anything."""

    def __init__(self, segment: Segment, expected_offset: int, leader_epoch: int) -> None:
        self.segment = segment
        # Both as of the last good batch.
        self.next_offset = max(expected_offset, segment.base_offset)
        self.leader_epoch = leader_epoch
        self.end_position = 0
        self.epochs: list[tuple[int, int]] = []
        self.indexes = IndexBuilder(segment.base_offset, segment.index_interval_bytes)
        self.has_markers = False
        self.problem: str | None = None
        self.has_producers = False

    def run(self) -> None:
        window = _Window(self.segment.file)
        end = self.segment.size_bytes
        while self.end_position < end:
            view = window.at(self.end_position, HEADER_BYTES)
            if view is None:
                self.problem = f"{end - self.end_position} bytes are too few for a batch"
                return
            batch = BatchView(view)
            self.problem = self._header_problem(batch, end - self.end_position)
            if self.problem is not None:
                return
            if batch.size_bytes > len(view):
                view = window.at(self.end_position, batch.size_bytes)
                batch.buffer = view or batch.buffer
            if view is None or not batch.crc_is_valid():
                self.problem = "batch checksum does not match"
                return
            self._accept(batch)

    def _header_problem(self, batch: BatchView, available_bytes: int) -> str | None:
        if batch.magic != MAGIC:
            return f"magic is {batch.magic}, not {MAGIC}"
        if batch.size_bytes < HEADER_BYTES:
            return f"batch says {batch.size_bytes} bytes"
        if batch.size_bytes > available_bytes:
            return f"batch says {batch.size_bytes} bytes, {available_bytes} are left"
        if batch.base_offset < self.next_offset:
            return f"batch has offset {batch.base_offset}, expected {self.next_offset} or more"
        if batch.last_offset_delta < 0 or batch.record_count < 0:
            return "batch has a negative count"
        if batch.last_offset - self.segment.base_offset > RELATIVE_OFFSET_MAX:
            return f"batch ends at offset {batch.last_offset}, too far from the segment's base"
        if batch.partition_leader_epoch < self.leader_epoch:
            return (
                f"batch has leader epoch {batch.partition_leader_epoch} after {self.leader_epoch}"
            )
        return None

    def _accept(self, batch: BatchView) -> None:
        if batch.partition_leader_epoch > self.leader_epoch:
            self.leader_epoch = batch.partition_leader_epoch
            self.epochs.append((self.leader_epoch, batch.base_offset))
        if batch.producer_id >= 0:
            self.has_producers = True
        self.indexes.add(batch, self.end_position)
        self.has_markers |= batch.is_control
        self.next_offset = batch.next_offset
        self.end_position += batch.size_bytes


class _Window:
    """A file read in large pieces."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._start = 0
        self._data = memoryview(b"")

    def at(self, position: int, length: int) -> memoryview | None:
        """What is at hand from `position` on, at least `length` bytes; None at the end."""
        offset = position - self._start
        if offset < 0 or offset + length > len(self._data):
            data = self._file.read_at(position, max(length, _WINDOW_BYTES))
            self._start, offset = position, 0
            self._data = memoryview(data)
        if offset + length > len(self._data):
            return None
        return self._data[offset:]


def has_intact_batch(segment: Segment, position: int, expected_offset: int) -> bool:
    """Whether a whole, valid batch with a later offset starts anywhere from `position` on.

    Lengths cannot be trusted behind a bad batch, so every byte is a candidate; the fields
    that a batch of this log must have leave few of them to be checksummed.
    """
    file = segment.file
    # Upper half of an offset in [expected, expected + 2^31], any lower half, any length and
    # epoch, magic.
    uppers = {value >> 32 for value in (expected_offset, expected_offset + RELATIVE_OFFSET_MAX)}
    prefix = b"|".join(re.escape(upper.to_bytes(4, "big")) for upper in sorted(uppers))
    pattern = re.compile(b"(?=(?:" + prefix + b").{12}\x02)", re.DOTALL)
    zeros = bytes(_WINDOW_BYTES)
    while position < file.size_bytes - HEADER_BYTES:
        # Overlapping by a header, so that none is missed between two windows.
        data = file.read_at(position, _WINDOW_BYTES + HEADER_BYTES)
        if len(data) <= HEADER_BYTES:
            return False
        if data[:_WINDOW_BYTES] != zeros[: len(data)]:
            for match in pattern.finditer(data):
                if match.start() < _WINDOW_BYTES and _is_intact(
                    file, position + match.start(), expected_offset
                ):
                    return True
        position += _WINDOW_BYTES
    return False


def _is_intact(file: LogFile, position: int, expected_offset: int) -> bool:
    header = file.read_at(position, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return False
    batch = BatchView(memoryview(header))
    if (
        batch.magic != MAGIC
        or not expected_offset <= batch.base_offset <= expected_offset + RELATIVE_OFFSET_MAX
        or batch.last_offset_delta < 0
        or not HEADER_BYTES <= batch.size_bytes <= file.size_bytes - position
    ):
        return False
    whole = file.read_at(position, batch.size_bytes)
    return len(whole) == batch.size_bytes and BatchView(memoryview(whole)).crc_is_valid()
