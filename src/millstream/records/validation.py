"""What Kafka checks before a client's batch enters the log, with Kafka's error codes.

First the header and the CRC, then every record: a batch with a right checksum and garbage
inside would stop every consumer that reaches it. The records are walked over without making
objects of them (`walking`). Checks run in Kafka's order, so that a batch with two faults gets
the same answer.

To unpack and walk over a large batch takes milliseconds. `LIGHT` says what may be done on the
event loop; `HEAVY` belongs in a thread, which makes a `CheckedBatch` of it.

A header that is wrong about the newest of its records is corrected in place, as Kafka does: lookups
by time, rolling, retention and compaction go by what it says.

A batch is checked alone, or in a group whose batches were found to be well-formed while
they were received. What a topic asks of a batch is written down once, for both, in
`_too_large` and `_check_attributes`.
"""

from typing import Final, Protocol

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.model import NO_TIMESTAMP_MS, Codec, TimestampType
from millstream.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchView,
)
from millstream.records.compression import (
    Bytes,
    TooLarge,
    bytes_of_pieces,
    bytes_of_reading,
    decompress,
)
from millstream.records.unpacking import unpacked
from millstream.records.walking import IMPLEMENTATION, Problem, Walked, walked

INT64_MAX: Final = 2**63 - 1
# Looked up once: a member of an enum costs as much as a function call.
_CODEC_MAX: Final = max(Codec).value
_LZ4: Final = Codec.LZ4.value
_ZSTD: Final = Codec.ZSTD.value
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
# What readers of stored batches unpack at most. A produced batch stops at `HEAVY`.
DECODED_BYTES_MAX: Final = 128 * 1024 * 1024
_ERRORS_SHOWN_MAX: Final = 3
# How far records are unpacked, and how many bytes of them are walked over, on the event loop:
# about a millisecond.
LIGHT: Final = 1 << 20
# Without unpacking; above the default of max.message.bytes, which large producers fill.
LIGHT_PLAIN: Final = 2 << 20
HEAVY: Final = 64 << 20
_INT64_MIN: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The settings of a topic that a produced batch is held against."""

    message_bytes_max: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    is_key_required: bool = False
    # Only for requests whose transaction was verified.
    is_transactional_allowed: bool = False


class RecordErrors(KafkaError):
    """A batch refused because of single records: their index in the batch, and why."""

    def __init__(self, code: KafkaCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class TooHeavy(KafkaError):
    """The records of this batch are to be checked in a thread. Never an answer."""

    def __init__(self) -> None:
        super().__init__(KafkaCode.INVALID_RECORD, "this batch takes long to check")


class CheckedBatch(BatchView):
    """A batch that was checked before its append, against these rules."""

    __slots__ = ("decoded_bytes", "rules")

    rules: BatchRules
    # What was unpacked for that; more where it is in many small pieces.
    decoded_bytes: int


class AppendOneByOne(KafkaError):
    """These batches cannot be appended together; each one gets its own answer. No answer itself."""

    def __init__(self) -> None:
        super().__init__(KafkaCode.INVALID_RECORD, "these batches have to be appended one by one")


class BatchFacts(Protocol):
    """What a single batch and a group of batches both know."""

    @property
    def attributes(self) -> int:
        """Bits that any of the batches has, and the largest codec."""
        ...

    @property
    def producer_id(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...


class WellFormedGroup(BatchFacts, Protocol):
    """Batches whose bytes are known to be right: magic, lengths, counts, largest timestamps and
    CRC."""

    @property
    def largest_bytes(self) -> int:
        """The size of the largest batch."""
        ...


def produced_batch(data: memoryview) -> BatchView:
    """The batch that a produce holds for a partition. Raises KafkaError."""
    if len(data) < HEADER_BYTES:
        raise _no_batch()
    batch = BatchView(data)
    if batch.size_bytes < len(data):
        _check_single(batch)
    return batch


def _check_single(batch: BatchView) -> None:
    """There is something behind this batch."""
    if batch.magic == MAGIC:
        if batch.size_bytes < HEADER_BYTES or not batch.crc_is_valid():
            raise KafkaError(KafkaCode.CORRUPT_MESSAGE, "batch checksum does not match")
        # As Kafka does: a second batch would make answers and retries ambiguous.
        raise _invalid("a produce holds exactly one batch")


def check_produced(
    batch: BatchView, rules: BatchRules, now_ms: int, *, decoded_bytes_max: int = LIGHT
) -> None:
    """Raises KafkaError when a client may not append this batch, and TooHeavy where more than
    `decoded_bytes_max` would have to be looked at."""
    # Nearly always the same object: to compare the fields takes longer than most checks.
    if isinstance(batch, CheckedBatch) and (batch.rules is rules or batch.rules == rules):
        return
    _check(batch, rules, now_ms, decoded_bytes_max)


def _check(batch: BatchView, rules: BatchRules, now_ms: int, decoded_bytes_max: int) -> int:
    """How many bytes were unpacked."""
    # One call where everything is as nearly always; what is wrong is found out below.
    if not batch.attributes and len(batch.buffer) <= LIGHT_PLAIN:
        earliest_ms, latest_ms = _time_limits(rules, now_ms)
        if (
            IMPLEMENTATION.is_ordinary(
                batch.buffer,
                rules.message_bytes_max,
                earliest_ms,
                latest_ms,
                rules.is_key_required,
            )
            and batch.crc_is_valid()
        ):
            return 0
    return check_in_order(batch, rules, now_ms, decoded_bytes_max)


def check_in_order(batch: BatchView, rules: BatchRules, now_ms: int, decoded_bytes_max: int) -> int:
    """One check after the other, in Kafka's order. How many bytes were unpacked."""
    if batch.magic != MAGIC:
        raise _magic_error(batch.magic)
    if batch.base_offset != 0:
        raise _invalid(f"base offset of a produced batch must be 0, not {batch.base_offset}")
    size_bytes = batch.size_bytes
    if size_bytes > rules.message_bytes_max:
        raise _too_large(size_bytes, rules)
    if size_bytes > len(batch.buffer):
        raise _invalid(f"batch says {size_bytes} bytes, {len(batch.buffer)} are there")
    if size_bytes < HEADER_BYTES:
        raise KafkaError(KafkaCode.CORRUPT_MESSAGE, f"batch of {size_bytes} bytes cannot be")
    if not batch.crc_is_valid():
        raise KafkaError(KafkaCode.CORRUPT_MESSAGE, "batch checksum does not match")
    count = batch.record_count
    if count <= 0:
        raise _invalid(f"batch says it holds {count} records")
    if batch.last_offset_delta != count - 1:
        raise _invalid(f"batch of {count} records has last offset delta {batch.last_offset_delta}")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise _invalid(
            f"producer {batch.producer_id} sent epoch {batch.producer_epoch}"
            f" and sequence {batch.base_sequence}"
        )
    # Nearly always there is nothing but the codec.
    if not 0 <= batch.attributes < _ZSTD:
        _check_attributes(batch, rules)
        if batch.attributes & TIMESTAMP_TYPE_MASK:
            _check_append_time(batch, rules, now_ms)
    return _check_records(batch, rules, now_ms, decoded_bytes_max)


def checked_batch(
    data: memoryview, rules: BatchRules, now_ms: int, *, decoded_bytes_max: int
) -> CheckedBatch:
    """The batch of a produce, checked. Raises KafkaError, and TooHeavy as `check_produced`."""
    if len(data) < HEADER_BYTES:
        raise _no_batch()
    batch = CheckedBatch(data)
    if batch.size_bytes < len(data):
        _check_single(batch)
    batch.decoded_bytes = _check(batch, rules, now_ms, decoded_bytes_max)
    batch.rules = rules
    return batch


def checked_whole_batch(data: memoryview, rules: BatchRules, now_ms: int) -> CheckedBatch | None:
    """As `checked_batch`, for an uncompressed batch outside of transactions whose bytes are known
    to be right, its largest timestamp as well. None where more has to be looked at."""
    batch = CheckedBatch(data)
    if batch.size_bytes > rules.message_bytes_max or _needs_records(batch, rules, now_ms):
        return None
    batch.decoded_bytes = 0
    batch.rules = rules
    return batch


def as_checked(batch: BatchView, rules: BatchRules) -> CheckedBatch:
    """A batch that was made of a checked one."""
    checked = CheckedBatch(batch.buffer)
    checked.decoded_bytes = 0
    checked.rules = rules
    return checked


def check_group(group: WellFormedGroup, rules: BatchRules, now_ms: int) -> None:
    """As `check_produced`. Raises KafkaError when any of the batches may not be appended."""
    if group.largest_bytes > rules.message_bytes_max:
        raise _too_large(group.largest_bytes, rules)
    if not 0 <= group.attributes < _ZSTD:
        _check_attributes(group, rules)
    if _needs_records(group, rules, now_ms):
        raise AppendOneByOne


def _no_batch() -> KafkaError:
    return _invalid("no record batch in the request")


def _too_large(size_bytes: int, rules: BatchRules) -> KafkaError:
    return KafkaError(
        KafkaCode.MESSAGE_TOO_LARGE,
        f"batch of {size_bytes} bytes is larger than max.message.bytes ({rules.message_bytes_max})",
    )


def _needs_records(group: BatchFacts, rules: BatchRules, now_ms: int) -> bool:
    """Can only the records tell whether the topic takes them?"""
    if rules.is_key_required:
        return True
    if rules.timestamp_type is _LOG_APPEND_TIME:
        return False
    # The header has the largest timestamp but not the smallest.
    return (
        group.max_timestamp_ms - now_ms > rules.timestamp_after_max_ms
        or rules.timestamp_before_max_ms < now_ms
    )


def _check_attributes(batches: BatchFacts, rules: BatchRules) -> None:
    attributes = batches.attributes
    if attributes & CONTROL_MASK:
        raise _invalid("clients may not write control records")
    if attributes & TRANSACTIONAL_MASK:
        if not rules.is_transactional_allowed:
            raise KafkaError(KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if batches.producer_id < 0:
            raise _invalid("transactional batch without a producer id")
    if attributes & CODEC_MASK > _CODEC_MAX:
        raise KafkaError(
            KafkaCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"unknown compression codec {attributes & CODEC_MASK}",
        )


def _check_append_time(batch: BatchView, rules: BatchRules, now_ms: int) -> None:
    """A producer says that all records were appended at the largest timestamp. Kafka then takes it
    for that of each record: the topic has to allow it."""
    earliest_ms, latest_ms = _time_limits(rules, now_ms)
    if rules.timestamp_type is _LOG_APPEND_TIME or batch.max_timestamp_ms == NO_TIMESTAMP_MS:
        raise KafkaError(
            KafkaCode.INVALID_TIMESTAMP, "producers may not set the timestamp type LogAppendTime"
        )
    if not earliest_ms <= batch.max_timestamp_ms <= latest_ms:
        raise KafkaError(
            KafkaCode.INVALID_TIMESTAMP,
            f"timestamp {batch.max_timestamp_ms} is not within [{earliest_ms}, {latest_ms}]",
        )


def _magic_error(magic: int) -> KafkaError:
    if magic in (0, 1):
        return _invalid(f"record format v{magic} is no longer written; use v2 batches")
    return KafkaError(KafkaCode.CORRUPT_MESSAGE, f"unknown record format: magic {magic}")


def _check_records(batch: BatchView, rules: BatchRules, now_ms: int, decoded_bytes_max: int) -> int:
    codec = batch.attributes & CODEC_MASK
    if not codec:
        if batch.size_bytes > LIGHT_PLAIN and decoded_bytes_max < HEAVY:
            raise TooHeavy
        _walk(batch, rules, now_ms, batch.buffer, HEADER_BYTES, batch.size_bytes)
        return 0
    if decoded_bytes_max < HEAVY:
        light_bytes = bytes_of_reading(batch.codec, batch.records)
        if light_bytes > decoded_bytes_max:
            raise TooHeavy
        if codec < _LZ4:
            light_bytes = max(light_bytes, _bytes_of_pieces(batch, decoded_bytes_max))
        data = _unpacked_light(batch, decoded_bytes_max)
        _walk(batch, rules, now_ms, data, 0, len(data))
        return max(len(data), light_bytes)
    try:
        with unpacked(batch.codec, batch.records, limit_bytes=decoded_bytes_max) as records:
            _walk(batch, rules, now_ms, records, 0, len(records))
            return len(records)
    except TooLarge as error:
        raise _invalid(str(error)) from None
    except ValueError as error:
        raise _damaged(error) from error


def _walk(
    batch: BatchView, rules: BatchRules, now_ms: int, data: Bytes, start: int, stop: int
) -> None:
    earliest_ms, latest_ms = _time_limits(rules, now_ms)
    # Not `walk`: this is called for every batch, and nearly always finds nothing.
    raw = IMPLEMENTATION.walk_records(
        data,
        start,
        stop,
        batch.record_count,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        earliest_ms,
        latest_ms,
        rules.is_key_required,
    )
    newest_ms = batch.max_timestamp_ms
    if raw is not None:
        found = walked(raw)
        if found.problem is not Problem.NONE:
            raise _invalid(found.text)
        if found.bad_time_count or found.null_key_count:
            raise _record_errors(found, earliest_ms, latest_ms)
        newest_ms = found.max_timestamp_ms
    elif not batch.attributes & TIMESTAMP_TYPE_MASK:
        return
    # Under LogAppendTime the append does it.
    if rules.timestamp_type is not _LOG_APPEND_TIME:
        batch.stamp_create_time(newest_ms)


def _time_limits(rules: BatchRules, now_ms: int) -> tuple[int, int]:
    """The earliest and the latest timestamp that a record may have."""
    if rules.timestamp_type is _LOG_APPEND_TIME:
        return _INT64_MIN, INT64_MAX
    latest_ms = now_ms + rules.timestamp_after_max_ms
    if latest_ms > INT64_MAX:
        latest_ms = INT64_MAX
    return now_ms - rules.timestamp_before_max_ms, latest_ms


def _unpacked_light(batch: BatchView, decoded_bytes_max: int) -> bytes:
    try:
        return decompress(batch.codec, batch.records, limit_bytes=decoded_bytes_max)
    except TooLarge:
        raise TooHeavy from None
    except ValueError as error:
        raise _damaged(error) from error


def _bytes_of_pieces(batch: BatchView, decoded_bytes_max: int) -> int:
    found = bytes_of_pieces(batch.codec, batch.records, limit_bytes=decoded_bytes_max)
    if found > decoded_bytes_max:
        raise TooHeavy
    return found


def _damaged(error: ValueError) -> KafkaError:
    # Not CORRUPT_MESSAGE, as if it had happened on the way: clients would send it again.
    return _invalid(f"records cannot be unpacked: {error}")


def _record_errors(found: Walked, earliest_ms: int, latest_ms: int) -> RecordErrors:
    """Only the first ones are named: a client could make the answer larger than its request."""
    times = [
        (index, f"timestamp {timestamp_ms} is not within [{earliest_ms}, {latest_ms}]")
        for index, timestamp_ms in found.bad_times
    ]
    keys = [(index, "compacted topics need a key in every record") for index in found.null_keys]
    if times:
        return RecordErrors(
            KafkaCode.INVALID_TIMESTAMP,
            "one or more records have a timestamp out of range",
            times + keys,
        )
    shown = "; ".join(f"{index}: {text}" for index, text in keys[:_ERRORS_SHOWN_MAX])
    return RecordErrors(
        KafkaCode.INVALID_RECORD, f"{found.null_key_count} records refused: {shown}", keys
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(KafkaCode.INVALID_RECORD, message)
