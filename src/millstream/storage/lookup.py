"""Finds records across the segments of a log: by offset and by time.

What a reader gets ends with its limit of bytes, with the segment, or where it may not read on. The
limit may cut the last batch. A first batch above it is given whole, or not at all, as the caller
says (`at_least_one`).
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Final

from millstream.model import Codec
from millstream.records.batch import HEADER_BYTES, TIMESTAMP_TYPE_MASK, BatchView
from millstream.records.compression import TooLarge, decompress_light
from millstream.records.unpacking import unpacked
from millstream.records.validation import DECODED_BYTES_MAX
from millstream.records.walking import find_time
from millstream.storage.segment import Segment
from millstream.storage.values import INT64_MAX, FileRange, TimestampOffset

log = logging.getLogger(__name__)

# Reading this much takes about a millisecond.
_BYTES_ON_LOOP_MAX: Final = 1 << 18
# Batches whose header promises a timestamp that no record of theirs has that can be read.
_BATCHES_MAX: Final = 16
# To pass over so many takes less than a millisecond. The time index leaves fewer to look at, unless
# the newest records came before many older ones.
_HEADERS_MAX: Final = 500


def find_range(
    segments: Sequence[Segment],
    number: int,
    offset: int,
    *,
    max_bytes: int,
    upto_offset: int,
    next_offset: int,
    at_least_one: bool,
) -> FileRange | None:
    """The bytes that a consumer at `offset` should get next, all from one segment.

    Compaction leaves batches without records, because producers need them. librdkafka takes
    a response with nothing else for a record that is too large, so they are skipped. At the end
    of what may be read they are sent, or the consumer would never get there.
    """
    first = None
    while True:
        found = _locate(
            segments,
            number,
            offset,
            max_bytes=max_bytes,
            upto_offset=upto_offset,
            next_offset=next_offset,
            at_least_one=at_least_one,
        )
        if found is None:
            return first
        number, position, first_bytes, length = found
        segment = segments[number]
        file_range = FileRange(segment.file, position, length)
        # No bytes after the header: no records.
        if first_bytes > HEADER_BYTES:
            return file_range
        first = first or file_range
        offset = _offset_behind_empty(segment, position)
        if offset >= upto_offset:
            return first


def find_all_batches(
    segments: Sequence[Segment], number: int, offset: int, *, max_bytes: int, next_offset: int
) -> FileRange | None:
    """The bytes that a replica at `offset` should get next: every batch, up to the end.

    Including those without records: a replica's log has the same batches, and the producer
    state is built from them. The first batch is always complete, and the last one unless it is old.
    """
    found = _locate(
        segments,
        number,
        offset,
        max_bytes=max_bytes,
        upto_offset=next_offset,
        next_offset=next_offset,
        at_least_one=True,
    )
    if found is None:
        return None
    number, position, _, length = found
    segment = segments[number]
    if position + length < segment.size_bytes:
        # The part of a batch would be sent once more with the rest of it.
        length = segment.whole_batches_bytes(position, length)
    return FileRange(segment.file, position, length)


def _offset_behind_empty(segment: Segment, position: int) -> int:
    """Where the empty batches at `position` end."""
    behind = segment.base_offset
    for _, batch in segment.headers(position):
        if batch.size_bytes > HEADER_BYTES:
            break
        behind = batch.next_offset
    return behind


def _locate(
    segments: Sequence[Segment],
    number: int,
    offset: int,
    *,
    max_bytes: int,
    upto_offset: int,
    next_offset: int,
    at_least_one: bool,
) -> tuple[int, int, int, int] | None:
    """Segment number, position, size of the first batch and length of the bytes from the
    batch that holds `offset` on. If compaction has left nothing there, a later segment is
    used."""
    for index, segment in enumerate(islice(segments, number, None), number):
        found = segment.find(offset)
        if found is None:
            continue
        position, size_bytes = found
        is_last = index == len(segments) - 1
        end_offset = next_offset if is_last else segments[index + 1].base_offset
        end = segment.size_bytes
        if upto_offset < end_offset:
            beyond = segment.find(upto_offset)
            end = end if beyond is None else beyond[0]
        if end <= position:
            return None
        length = min(max_bytes, end - position)
        if length < size_bytes:
            if not at_least_one:
                return None
            length = size_bytes
        return index, position, size_bytes, length
    return None


class LargeBatch(Exception):
    """Raised where a lookup would take long for the loop: call `search` in a thread, then look up
    again with what it found."""

    def __init__(self, batch: BatchView, timestamp_ms: int, from_offset: int) -> None:
        super().__init__(batch.base_offset)
        self.base_offset = batch.base_offset
        self._batch = batch
        self._timestamp_ms = timestamp_ms
        self._from_offset = from_offset

    def search(self) -> TimestampOffset | None:
        return _first_at(
            self._batch, self._timestamp_ms, self._from_offset, limit_bytes=DECODED_BYTES_MAX
        )


class _Pause(LargeBatch):
    """Much was passed over, up to and with this batch. To wait for a thread gives others their
    turn, though nothing is left to be searched."""

    def __init__(self, base_offset: int, found: TimestampOffset | None) -> None:
        Exception.__init__(self, base_offset)
        self.base_offset = base_offset
        self._found = found

    def search(self) -> TimestampOffset | None:
        return self._found


# What was found in large batches, by their base offsets.
Searched = Mapping[int, TimestampOffset | None]
_NOTHING_YET: Final[Searched] = {}
# For a batch whose header promises nothing.
_PASSED_OVER: Final = TimestampOffset(-1, -1, -1)


def find_timestamp(
    segments: Sequence[Segment],
    timestamp_ms: int,
    *,
    from_offset: int,
    upto_offset: int,
    searched: Searched | None = None,
) -> TimestampOffset | None:
    """The first record at or after `timestamp_ms`. Raises LargeBatch; with `searched`, empty at
    first, also where there are many batches to pass over."""
    known = _NOTHING_YET if searched is None else searched
    # Everything before was passed over.
    start_offset = max(known, default=from_offset)
    batches_left = _BATCHES_MAX - sum(found is None for found in known.values())
    headers_left = _HEADERS_MAX
    for segment in segments:
        if segment.read_max_timestamp() < timestamp_ms:
            continue
        for position, header in segment.headers_since(timestamp_ms, from_offset=start_offset):
            if header.base_offset >= upto_offset:
                return None
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < from_offset:
                headers_left -= 1
                if headers_left < 0 and searched is not None:
                    raise _Pause(header.base_offset, _PASSED_OVER)
                continue
            batch = segment.read_batch(position, header.size_bytes)
            answer = _search(batch, timestamp_ms, from_offset, known)
            if answer is None:
                if batch.base_offset not in known:
                    batches_left -= 1
                    if batches_left and searched is not None:
                        raise _Pause(batch.base_offset, None)
                if batches_left <= 0:
                    answer = _batch_itself(batch, from_offset)
            if answer is not None:
                return answer if answer.offset < upto_offset else None
    return None


def _search(
    batch: BatchView, timestamp_ms: int, from_offset: int, searched: Searched
) -> TimestampOffset | None:
    if batch.base_offset in searched:
        return searched[batch.base_offset]
    try:
        return _first_at(batch, timestamp_ms, from_offset, limit_bytes=_BYTES_ON_LOOP_MAX)
    except TooLarge:
        raise LargeBatch(batch, timestamp_ms, from_offset) from None


def _first_at(
    batch: BatchView, timestamp_ms: int, from_offset: int, *, limit_bytes: int
) -> TimestampOffset | None:
    """None also if its records cannot be read: readers go past such a batch, so a lookup does, too.

    Raises TooLarge, unless `limit_bytes` is what a batch may have at all.
    """
    append_time_ms = batch.max_timestamp_ms if batch.attributes & TIMESTAMP_TYPE_MASK else None
    try:
        with _records(batch, limit_bytes) as records:
            found = find_time(
                records,
                batch.record_count,
                base_timestamp_ms=batch.base_timestamp_ms,
                timestamp_ms=timestamp_ms if append_time_ms is None else -INT64_MAX,
                delta_min=max(from_offset - batch.base_offset, 0),
            )
    except ValueError as error:
        if isinstance(error, TooLarge) and limit_bytes < DECODED_BYTES_MAX:
            raise
        log.warning(
            "a lookup by time skips the batch at offset %d, whose records cannot be read: %s",
            batch.base_offset,
            error,
        )
        return None
    if found is None:
        return None
    delta, found_ms = found
    return TimestampOffset(
        found_ms if append_time_ms is None else append_time_ms,
        batch.base_offset + delta,
        batch.partition_leader_epoch,
    )


def _records(batch: BatchView, limit_bytes: int) -> AbstractContextManager[bytes | memoryview]:
    if limit_bytes > _BYTES_ON_LOOP_MAX or batch.codec is Codec.NONE:
        return unpacked(batch.codec, batch.records, limit_bytes=limit_bytes)
    return nullcontext(decompress_light(batch.codec, batch.records, limit_bytes=limit_bytes))


def _batch_itself(batch: BatchView, from_offset: int) -> TimestampOffset:
    """Where looking further would take long: a reader that starts at the batch misses nothing."""
    return TimestampOffset(
        batch.max_timestamp_ms, max(batch.base_offset, from_offset), batch.partition_leader_epoch
    )


def find_max_timestamp(
    segments: Sequence[Segment],
    *,
    from_offset: int,
    upto_offset: int,
    searched: Searched = _NOTHING_YET,
) -> TimestampOffset | None:
    """The first record with the largest timestamp of all; None if it is outside the bounds, or
    cannot be read. Raises LargeBatch.

    Kafka does not look for the largest one inside the bounds, either: that could mean to read
    every header of a segment.
    """
    newest = max(segments, key=lambda segment: segment.read_max_timestamp())
    timestamp_ms = newest.read_max_timestamp()
    if timestamp_ms < 0:
        return None
    found = newest.find(newest.max_timestamp_offset)
    if found is None:
        return None
    batch = newest.read_batch(*found)
    if batch.base_offset >= upto_offset or batch.next_offset <= from_offset:
        return None
    answer = _search(batch, timestamp_ms, from_offset, searched)
    if answer is None or not from_offset <= answer.offset < upto_offset:
        return None
    return answer
