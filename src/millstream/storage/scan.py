"""Checks every byte of a segment, and looks for intact batches in damaged ones."""

import re
from typing import Final

from millstream.records.batch import (
    CONTROL_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_FIELD_END,
    MAGIC,
    BatchView,
)
from millstream.records.checksum import crc32c
from millstream.storage.files import LogFile
from millstream.storage.segment import RELATIVE_OFFSET_MAX, IndexBuilder, Segment

_WINDOW_BYTES: Final = 1 << 20
_BAD_CHECKSUM: Final = "batch checksum does not match"
# Fields of a header, by their numbers.
_MAX_TIMESTAMP: Final = 8
_PRODUCER_ID: Final = 9
_RECORD_COUNT: Final = 12


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
        # Later writes are not checked.
        self._end = segment.size_bytes
        self._wanted_bytes = HEADER_BYTES

    def run(self) -> None:
        """Window after window; a batch that does not end in one begins the next."""
        while not self.is_over:
            position, length = self.next_window(_WINDOW_BYTES)
            self.take(self.segment.file.read_at(position, length))

    @property
    def is_over(self) -> bool:
        return self.end_position >= self._end or self.problem is not None

    def next_window(self, size_bytes: int) -> tuple[int, int]:
        """Position and length of what `take` needs next: about `size_bytes`, or one batch."""
        left_bytes = self._end - self.end_position
        return self.end_position, min(max(self._wanted_bytes, size_bytes), left_bytes)

    def take(self, data: bytes) -> None:
        """Check what was read at `next_window`."""
        if len(data) >= self._wanted_bytes:
            self._wanted_bytes = self._scan_window(memoryview(data), self._end)
        elif self._wanted_bytes == HEADER_BYTES:
            left_bytes = self._end - self.end_position
            self.problem = f"{left_bytes} bytes are too few for a batch"
        else:
            self.problem = _BAD_CHECKSUM

    def _scan_window(self, window: memoryview, end: int) -> int:
        """Accept the batches that are complete in `window`, which begins at `end_position`.

        Returns the bytes that the next batch needs. One loop over plain fields: objects and
        calls for each batch took as long as reading the bytes.
        """
        start, window_bytes = self.end_position, len(window)
        next_offset, leader_epoch = self.next_offset, self.leader_epoch
        last_offset_max = self.segment.base_offset + RELATIVE_OFFSET_MAX
        add_to_indexes, unpack = self.indexes.add, HEADER.unpack_from
        at, wanted_bytes, is_implausible = 0, HEADER_BYTES, False
        while window_bytes - at >= HEADER_BYTES:
            header = unpack(window, at)
            base_offset, length, epoch, magic, crc, attributes, last_offset_delta = header[:7]
            size_bytes = length + LENGTH_FIELD_END
            last_offset = base_offset + last_offset_delta
            if (
                magic != MAGIC
                or not HEADER_BYTES <= size_bytes <= end - start - at
                or base_offset < next_offset
                or last_offset_delta < 0
                or last_offset > last_offset_max
                or epoch < leader_epoch
                or header[_RECORD_COUNT] < 0
            ):
                is_implausible = True
                break
            if size_bytes > window_bytes - at:
                wanted_bytes = size_bytes
                break
            if crc32c(window[at + CRC_START : at + size_bytes]) != crc:
                self.problem = _BAD_CHECKSUM
                break
            if epoch > leader_epoch:
                leader_epoch = epoch
                self.epochs.append((epoch, base_offset))
            if header[_PRODUCER_ID] >= 0:
                self.has_producers = True
            if attributes & CONTROL_MASK:
                self.has_markers = True
            add_to_indexes(start + at, size_bytes, last_offset, header[_MAX_TIMESTAMP])
            next_offset = last_offset + 1
            at += size_bytes
        self.next_offset, self.leader_epoch = next_offset, leader_epoch
        self.end_position = start + at
        if is_implausible:
            self.problem = self._header_problem(BatchView(window[at:]), end - self.end_position)
        return wanted_bytes

    def _header_problem(self, batch: BatchView, available_bytes: int) -> str:
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
        return f"batch has leader epoch {batch.partition_leader_epoch} after {self.leader_epoch}"


def has_intact_batch(segment: Segment, position: int, expected_offset: int) -> bool:
    """Whether a complete, valid batch with a later offset starts anywhere from `position` on.

    Lengths cannot be trusted after a bad batch, so every byte is a candidate; the required
    field values of a batch of this log leave few of them to be checksummed.
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
