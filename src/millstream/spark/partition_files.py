"""What the files of one partition contain besides its records, read without its broker.

Which transactions were aborted, which are still open, and which offset belongs to a time.
A rolled segment has all its indexes on the disk. Those of the segment that is being written
are in the broker's memory for a while, so its batches are scanned instead, from the
producer snapshot that was taken when it began.

The files may be changed or deleted at any moment: everything is read with a length, never
mapped into memory.
"""

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.records.columns import decode
from millstream.storage.aborted_index import ENTRY as ABORTED_ENTRY
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.layout import (
    ABORTED_INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_file_name,
    parse_segment_file,
)
from millstream.storage.producers import ProducerStates
from millstream.storage.time_index import ENTRY as TIME_ENTRY


class PartitionFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def segments(self) -> list[int]:
        """The base offsets of the segments, in order. Raises FileNotFoundError."""
        found = []
        for name in os.listdir(self._folder):
            parsed = parse_segment_file(name)
            if parsed is not None and parsed.suffix == LOG_SUFFIX:
                found.append(parsed.base_offset)
        return sorted(found)

    def path(self, base_offset: int, suffix: str) -> Path:
        return self._folder / offset_file_name(base_offset, suffix)

    # -- transactions -----------------------------------------------------------------------

    def aborted(self, from_offset: int, upto_offset: int) -> list[AbortedTransaction] | None:
        """The aborted transactions with records in the range, which ends at or below the
        last stable offset; None if the files are not conclusive."""
        bases = self.segments()
        states = self._states_at(bases)
        if states is None:
            return None
        found = []
        # A transaction is recorded where it ended, which may be any later segment.
        for base in [base for base in bases[:-1] if _next(bases, base) > from_offset]:
            found += self._index_of_aborted(base)
        found += self._walk(bases[-1], states)
        first_open = states.first_open_offset()
        if first_open is not None and first_open < upto_offset:
            # The broker knows an end that is not in these files yet.
            return None
        return [each for each in found if each.first_offset < upto_offset]

    def last_stable_offset(self, upto_offset: int) -> int | None:
        """Up to where everything is decided by the records below `upto_offset`."""
        bases = [base for base in self.segments() if base < upto_offset]
        if not bases:
            return upto_offset
        states = self._states_at(bases)
        if states is None:
            return None
        self._walk(bases[-1], states, upto_offset)
        first_open = states.first_open_offset()
        return upto_offset if first_open is None else min(first_open, upto_offset)

    def _states_at(self, bases: list[int]) -> ProducerStates | None:
        """The producers when the last segment began."""
        if not bases:
            return None
        try:
            data = self.path(bases[-1], SNAPSHOT_SUFFIX).read_bytes()
            return ProducerStates.decode(data, next_offset=bases[-1])
        except FileNotFoundError:
            return ProducerStates() if len(bases) == 1 else None
        except ValueError:
            return None

    def _index_of_aborted(self, base_offset: int) -> list[AbortedTransaction]:
        try:
            data = self.path(base_offset, ABORTED_INDEX_SUFFIX).read_bytes()
        except FileNotFoundError:
            return []
        whole = data[: len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size]
        return [AbortedTransaction(*fields[1:]) for fields in ABORTED_ENTRY.iter_unpack(whole)]

    def _walk(
        self, base_offset: int, states: ProducerStates, upto_offset: int | None = None
    ) -> list[AbortedTransaction]:
        found = []
        for batch in self._batches(base_offset, _is_control):
            if upto_offset is not None and batch.base_offset >= upto_offset:
                break
            aborted = states.update(batch)
            if aborted is not None:
                found.append(aborted)
        return found

    # -- time -------------------------------------------------------------------------------

    def offset_at(self, timestamp_ms: int, from_offset: int, upto_offset: int) -> int:
        """The first record in the range that is not older; -1 if all are."""
        bases = self.segments()
        for base in bases:
            if base >= upto_offset:
                break
            if _next(bases, base) <= from_offset or self._is_older(bases, base, timestamp_ms):
                continue
            candidates = self._batches(
                base,
                lambda batch: (
                    batch.max_timestamp_ms >= timestamp_ms
                    and batch.last_offset >= from_offset
                    and not batch.is_control
                ),
            )
            for batch in candidates:
                if len(batch.buffer) > HEADER_BYTES:
                    offset = _first_not_older(batch, timestamp_ms, from_offset, upto_offset)
                    if offset >= 0:
                        return offset
        return -1

    def _is_older(self, bases: list[int], base_offset: int, timestamp_ms: int) -> bool:
        """Whether a whole segment is older, by the last entry of its index."""
        if base_offset == bases[-1]:
            return False
        try:
            data = self.path(base_offset, TIME_INDEX_SUFFIX).read_bytes()
        except FileNotFoundError:
            return False
        if len(data) < TIME_ENTRY.size or len(data) % TIME_ENTRY.size:
            return False
        newest_ms: int = TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY.size)[0]
        return 0 < newest_ms < timestamp_ms

    # -- batches ----------------------------------------------------------------------------

    def _batches(
        self, base_offset: int, is_wanted_whole: Callable[[BatchView], bool]
    ) -> Iterator[BatchView]:
        """The batches of a segment: mostly only the headers."""
        with open(self.path(base_offset, LOG_SUFFIX), "rb", buffering=0) as file:
            position = 0
            while True:
                header = os.pread(file.fileno(), HEADER_BYTES, position)
                if len(header) < HEADER_BYTES:
                    return
                batch = BatchView(memoryview(header))
                if batch.magic != MAGIC or batch.size_bytes < HEADER_BYTES:
                    return
                if is_wanted_whole(batch):
                    whole = os.pread(file.fileno(), batch.size_bytes, position)
                    if len(whole) < batch.size_bytes:
                        return
                    batch = BatchView(memoryview(whole))
                yield batch
                position += batch.size_bytes


def _next(bases: list[int], base_offset: int) -> float:
    """Where the next segment begins; nowhere for the last."""
    after = bisect_right(bases, base_offset)
    return bases[after] if after < len(bases) else math.inf


def _is_control(batch: BatchView) -> bool:
    return batch.is_control


def _first_not_older(batch: BatchView, timestamp_ms: int, from_offset: int, upto: int) -> int:
    try:
        columns = decode(batch.bytes, from_offset=from_offset, upto_offset=upto)
    except ValueError:
        # What cannot be read has no times. A reader skips it, or reports damage.
        return -1
    times = memoryview(columns.timestamps_ms).cast("q")
    offsets = memoryview(columns.offsets).cast("q")
    return next((offsets[n] for n, time_ms in enumerate(times) if time_ms >= timestamp_ms), -1)
