"""When a record may be delivered: not before one time, and not after another.

A record says it in headers, whose values are milliseconds since 1970 in decimal. What is not
such a number counts as absent. Share groups go by each record; ordinary fetches, which send
whole batches, by the batch (see decision 0018).

To search a large batch takes milliseconds: `search` belongs in a thread.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from millstream.model import Codec
from millstream.records import unpacking
from millstream.records.batch import CODEC_MASK, BatchView
from millstream.records.compression import TooLarge, decompress_light
from millstream.records.records import RECORD_BYTES_MIN
from millstream.records.walking import IMPLEMENTATION, Bytes, Implementation

NOT_BEFORE: Final = "millstream.not.before.ms"
NOT_AFTER: Final = "millstream.not.after.ms"
HEADERS: Final = (NOT_BEFORE, NOT_AFTER)
NEVER_MS: Final = 2**63 - 1

_NAMES: Final = (NOT_BEFORE.encode(), NOT_AFTER.encode())
# What both names begin with.
_MARK: Final = b"millstream.not."
# A batch that unpacks to more is not searched.
UNPACKED_BYTES_MAX: Final = 16 << 20
# Offset delta, not before, not after.
_FIELDS: Final = 3


class RecordTimes(NamedTuple):
    """A record with at least one of the headers."""

    offset: int
    not_before_ms: int
    not_after_ms: int


class BatchTimes:
    """When all records of a batch are due, when all of them have expired, and the times of the
    records that have any, packed."""

    __slots__ = ("_base_offset", "_packed", "due_ms", "expired_after_ms")

    def __init__(
        self, base_offset: int, packed: bytes, *, due_ms: int, expired_after_ms: int
    ) -> None:
        self._base_offset = base_offset
        self._packed = memoryview(packed).cast("q")
        self.due_ms = due_ms
        self.expired_after_ms = expired_after_ms

    @property
    def size_bytes(self) -> int:
        return self._packed.nbytes

    def since(self, offset: int) -> Iterator[RecordTimes]:
        """Of the records from an offset on, in order."""
        packed, base_offset = self._packed, self._base_offset
        first = bisect_left(packed[::_FIELDS], offset - base_offset)
        for at in range(first * _FIELDS, len(packed), _FIELDS):
            yield RecordTimes(base_offset + packed[at], packed[at + 1], packed[at + 2])


NO_TIMES: Final = BatchTimes(0, b"", due_ms=0, expired_after_ms=NEVER_MS)


def headers_for(*, not_before_ms: int | None, not_after_ms: int | None) -> list[tuple[str, bytes]]:
    """For a producer."""
    wanted = ((NOT_BEFORE, not_before_ms), (NOT_AFTER, not_after_ms))
    return [(name, b"%d" % value) for name, value in wanted if value is not None]


def may_have_times(batches: Sequence[BatchView], data: bytes) -> bool:
    """A quick look at batches that are parts of `data`, searched at once: each may have a single
    record."""
    return _MARK in data or any(batch.attributes & CODEC_MASK for batch in batches)


def search(batch: BatchView) -> BatchTimes:
    """May take long: to be called in a thread."""
    try:
        with unpacking.unpacked(
            batch.codec, batch.records, limit_bytes=UNPACKED_BYTES_MAX
        ) as records:
            return search_records(batch, records)
    except ValueError:
        # Too large, or damaged: its readers find out.
        return NO_TIMES


def unpacked(batch: BatchView, *, limit_bytes: int) -> Bytes:
    """The records, for the event loop. Raises TooLarge if there are more bytes of them, or if they
    take as long to unpack, and ValueError if they are damaged."""
    data, codec = batch.records, batch.codec
    if codec is not Codec.NONE:
        return decompress_light(codec, data, limit_bytes=limit_bytes)
    if len(data) > limit_bytes:
        raise TooLarge(limit_bytes)
    return data


def search_records(
    batch: BatchView, records: Bytes, implementation: Implementation = IMPLEMENTATION
) -> BatchTimes:
    """`records` are those of the batch, unpacked; what is behind a damaged one does not count."""
    count = batch.record_count
    if batch.is_control or not 0 <= count * RECORD_BYTES_MIN <= len(records):
        return NO_TIMES
    packed, due_ms, expired_after_ms = implementation.find_delivery_times(records, count, *_NAMES)
    if not packed:
        return NO_TIMES
    return BatchTimes(batch.base_offset, packed, due_ms=due_ms, expired_after_ms=expired_after_ms)
