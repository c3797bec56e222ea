"""What Kafka checks before a client's batch enters the log, with Kafka's error codes.

The header answers nearly everything, and the CRC the rest; the records are decoded only
where the header cannot decide: keys on a compacted topic, a lower bound on timestamps,
or to say which record breaks the upper one. Checks run in Kafka's order, so that a batch
with two faults gets the same answer.

A batch is checked by itself, or in a group whose batches were found to be well-formed while
they were received. What a topic asks of a batch is written down once, for both, in
`_check_size` and `_check_facts`.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from millstream.errors import KafkaCode, KafkaError
from millstream.model import Codec, TimestampType
from millstream.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchView,
)
from millstream.records.records import Record, read_records

INT64_MAX: Final = 2**63 - 1
# Looked up once: a member of an enum costs as much as a function call.
_CODEC_MAX: Final = max(Codec).value
_ZSTD: Final = Codec.ZSTD.value
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
# Batches are compressed at most some thirty times in practice; a bomb stops here.
DECODED_BYTES_MAX: Final = 128 * 1024 * 1024
_ERRORS_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The settings of a topic that a produced batch is held against."""

    message_bytes_max: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    is_key_required: bool = False
    is_zstd_allowed: bool = True
    # Only for requests whose transaction was verified.
    is_transactional_allowed: bool = False
    decoded_bytes_max: int = DECODED_BYTES_MAX


class RecordErrors(KafkaError):
    """A batch refused because of single records: their index in the batch, and why."""

    def __init__(self, code: KafkaCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


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
    """Batches whose bytes are known to be right: magic, lengths, counts and CRC."""

    @property
    def largest_bytes(self) -> int:
        """The size of the largest batch."""
        ...


def produced_batch(data: memoryview) -> BatchView:
    """The batch that a produce holds for a partition. Raises KafkaError."""
    if len(data) < HEADER_BYTES:
        raise _invalid("no record batch in the request")
    batch = BatchView(data)
    if batch.size_bytes < len(data) and batch.magic == MAGIC:
        # As Kafka does: a second batch would make answers and retries ambiguous.
        raise _invalid("a produce holds exactly one batch")
    return batch


def check_produced(batch: BatchView, rules: BatchRules, now_ms: int) -> None:
    """Raises KafkaError when a client may not append this batch."""
    if batch.magic != MAGIC:
        raise _magic_error(batch.magic)
    if batch.base_offset != 0:
        raise _invalid(f"base offset of a produced batch must be 0, not {batch.base_offset}")
    size_bytes = batch.size_bytes
    _check_size(size_bytes, rules)
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
    if _check_facts(batch, rules, now_ms):
        _check_records(batch, rules, now_ms)


def check_group(group: WellFormedGroup, rules: BatchRules, now_ms: int) -> None:
    """As `check_produced`. Raises KafkaError when any of the batches may not be appended."""
    _check_size(group.largest_bytes, rules)
    if _check_facts(group, rules, now_ms):
        raise AppendOneByOne


def _check_size(size_bytes: int, rules: BatchRules) -> None:
    if size_bytes > rules.message_bytes_max:
        raise KafkaError(
            KafkaCode.MESSAGE_TOO_LARGE,
            f"batch of {size_bytes} bytes is larger than max.message.bytes"
            f" ({rules.message_bytes_max})",
        )


def _check_facts(batches: BatchFacts, rules: BatchRules, now_ms: int) -> bool:
    """Hold the facts against the rules. Whether only the records can tell the rest."""
    attributes = batches.attributes
    # Nearly always there is nothing but the codec.
    if not 0 <= attributes < _ZSTD:
        _check_attributes(batches, rules)
    if rules.is_key_required:
        return True
    if rules.timestamp_type is _LOG_APPEND_TIME:
        return False
    # The header has the largest timestamp but not the smallest.
    return (
        batches.max_timestamp_ms - now_ms > rules.timestamp_after_max_ms
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
    _check_codec(attributes & CODEC_MASK, rules)


def _magic_error(magic: int) -> KafkaError:
    if magic in (0, 1):
        return _invalid(f"record format v{magic} is no longer written; use v2 batches")
    return KafkaError(KafkaCode.CORRUPT_MESSAGE, f"unknown record format: magic {magic}")


def _check_codec(number: int, rules: BatchRules) -> None:
    if number > _CODEC_MAX:
        raise KafkaError(
            KafkaCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {number}"
        )
    if number == _ZSTD and not rules.is_zstd_allowed:
        raise KafkaError(
            KafkaCode.UNSUPPORTED_COMPRESSION_TYPE,
            "zstd needs Produce version 7 or newer",
        )


def _check_records(batch: BatchView, rules: BatchRules, now_ms: int) -> None:
    try:
        records = read_records(batch, limit_bytes=rules.decoded_bytes_max)
    except ValueError as error:
        raise KafkaError(KafkaCode.CORRUPT_MESSAGE, f"records cannot be read: {error}") from error
    timestamp_errors: list[tuple[int, str]] = []
    key_errors: list[tuple[int, str]] = []
    for index, record in enumerate(records):
        if record.offset - batch.base_offset != index:
            raise _invalid(f"record {index} has offset delta {record.offset - batch.base_offset}")
        if rules.is_key_required and record.key is None:
            key_errors.append((index, "compacted topics need a key in every record"))
        problem = _timestamp_problem(record, rules, now_ms)
        if problem is not None:
            timestamp_errors.append((index, problem))
    if timestamp_errors:
        raise RecordErrors(
            KafkaCode.INVALID_TIMESTAMP,
            "one or more records have a timestamp out of range",
            timestamp_errors + key_errors,
        )
    if key_errors:
        shown = "; ".join(f"{index}: {text}" for index, text in key_errors[:_ERRORS_SHOWN_MAX])
        raise RecordErrors(
            KafkaCode.INVALID_RECORD, f"{len(key_errors)} records refused: {shown}", key_errors
        )


def _timestamp_problem(record: Record, rules: BatchRules, now_ms: int) -> str | None:
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME or record.timestamp_ms < 0:
        return None
    earliest_ms = max(0, now_ms - rules.timestamp_before_max_ms)
    latest_ms = now_ms + rules.timestamp_after_max_ms
    if earliest_ms <= record.timestamp_ms <= latest_ms:
        return None
    return f"timestamp {record.timestamp_ms} is not within [{earliest_ms}, {latest_ms}]"


def _invalid(message: str) -> KafkaError:
    return KafkaError(KafkaCode.INVALID_RECORD, message)
