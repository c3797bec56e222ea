"""When a record may be delivered: not before one time, and not after another.

A record says it in headers, whose values are milliseconds since 1970 in decimal. What is not
such a number counts as absent. Share groups go by each record; ordinary fetches, which send
whole batches, by the batch (see decision 0018).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from millstream.model import Codec
from millstream.records.batch import CODEC_MASK, BatchView
from millstream.records.compression import decompress
from millstream.records.records import Record, iterate_records

NOT_BEFORE: Final = "millstream.not.before.ms"
NOT_AFTER: Final = "millstream.not.after.ms"
HEADERS: Final = (NOT_BEFORE, NOT_AFTER)
NEVER_MS: Final = 2**63 - 1

# What both names begin with. A batch without it has no times, and is not read further.
_MARK: Final = b"millstream.not."
_DIGITS_MAX: Final = 18
# A batch that unpacks to more is not searched: unpacking it would keep other clients waiting.
UNPACKED_BYTES_MAX: Final = 16 << 20


class RecordTimes(NamedTuple):
    """A record with at least one of the headers."""

    offset: int
    not_before_ms: int
    not_after_ms: int


class BatchTimes(NamedTuple):
    """When all records of a batch are due, and when all of them have expired."""

    due_ms: int
    expired_after_ms: int


_ANY_TIME: Final = BatchTimes(0, NEVER_MS)


def headers_for(*, not_before_ms: int | None, not_after_ms: int | None) -> list[tuple[str, bytes]]:
    """For a producer."""
    wanted = ((NOT_BEFORE, not_before_ms), (NOT_AFTER, not_after_ms))
    return [(name, b"%d" % value) for name, value in wanted if value is not None]


def times_of_records(batches: Sequence[BatchView], data: bytes) -> list[RecordTimes]:
    """Of the records that have times, in order; mostly none. The batches are parts of `data`."""
    if _MARK not in data and not any(batch.attributes & CODEC_MASK for batch in batches):
        # Searched at once: a batch may have a single record.
        return []
    return [
        RecordTimes(record.offset, not_before_ms, not_after_ms)
        for batch in batches
        for record, not_before_ms, not_after_ms in _times(batch)
        if not_before_ms or not_after_ms != NEVER_MS
    ]


def times_of_batch(batch: BatchView) -> BatchTimes:
    due_ms = expired_after_ms = 0
    count = 0
    for _, not_before_ms, not_after_ms in _times(batch):
        due_ms = max(due_ms, not_before_ms)
        expired_after_ms = max(expired_after_ms, not_after_ms)
        count += 1
    return BatchTimes(due_ms, expired_after_ms) if count else _ANY_TIME


def _times(batch: BatchView) -> Iterator[tuple[Record, int, int]]:
    """Each record with its times; nothing if no record of the batch has any."""
    if not _may_have_times(batch):
        return
    try:
        for record in iterate_records(batch, limit_bytes=UNPACKED_BYTES_MAX):
            # The last header of a name counts, as clients see it.
            headers = dict(record.headers)
            not_before_ms = _time(headers.get(NOT_BEFORE))
            not_after_ms = _time(headers.get(NOT_AFTER))
            yield (
                record,
                0 if not_before_ms is None else not_before_ms,
                NEVER_MS if not_after_ms is None else not_after_ms,
            )
    except ValueError:
        # Damaged: its readers find out.
        return


def _may_have_times(batch: BatchView) -> bool:
    if batch.is_control:
        return False
    codec = batch.codec
    data: bytes | memoryview = batch.records
    if codec is not Codec.NONE:
        try:
            data = decompress(codec, data, limit_bytes=UNPACKED_BYTES_MAX)
        except ValueError:
            return False
    return bytes(data).find(_MARK) >= 0


def _time(value: bytes | None) -> int | None:
    if value is None or len(value) > _DIGITS_MAX or not value.isdigit():
        return None
    return int(value)
