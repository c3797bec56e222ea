"""Prepares the batches of an append for the log: splits, checks and recompresses them.

`log` stamps LogAppendTime.
"""

from millstream.errors import KafkaCode, KafkaError
from millstream.model import TimestampType
from millstream.records.batch import CODEC_MASK, MAGIC, BatchView, split_batches
from millstream.records.builder import recompress
from millstream.records.validation import (
    DECODED_BYTES_MAX,
    HEAVY,
    BatchRules,
    CheckedBatch,
    TooHeavy,
    as_checked,
    checked_batch,
)
from millstream.storage.producers import ProducedBatch
from millstream.storage.values import Appended, LogConfig


def batch_rules(config: LogConfig) -> BatchRules:
    """What a topic's settings require of a produced batch."""
    return BatchRules(
        message_bytes_max=config.max_message_bytes,
        timestamp_type=config.timestamp_type,
        timestamp_before_max_ms=config.timestamp_before_max_ms,
        timestamp_after_max_ms=config.timestamp_after_max_ms,
        is_key_required=config.is_compacted,
    )


def answered_again(known: ProducedBatch, config: LogConfig, log_start_offset: int) -> Appended:
    """The answer to a retry of a batch that is already in the log."""
    is_append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
    append_time_ms = known.timestamp_ms if is_append_time else -1
    next_offset = known.last_offset + 1
    return Appended(known.base_offset, next_offset, append_time_ms, log_start_offset, True)


def ready_batch(
    data: memoryview, rules: BatchRules, config: LogConfig, now_ms: int, *, decoded_bytes_max: int
) -> CheckedBatch:
    """A produced batch, checked and under the topic's codec. Raises KafkaError for one that the
    append would refuse, and TooHeavy where that takes longer than it may."""
    checked = checked_batch(data, rules, now_ms, decoded_bytes_max=decoded_bytes_max)
    codec = config.compression_type
    if codec is None or checked.attributes & CODEC_MASK == codec:
        return checked
    if decoded_bytes_max < HEAVY:
        raise TooHeavy
    return as_checked(recompressed(checked, config), rules)


def replicated_batches(data: memoryview, next_offset: int) -> list[BatchView]:
    """Batches from a leader, for a log that ends at `next_offset`."""
    batches = _split(data)
    for batch in batches:
        if batch.magic != MAGIC or not batch.crc_is_valid():
            raise KafkaError(KafkaCode.CORRUPT_MESSAGE, "batch checksum does not match")
        # Gaps are legal, compaction leaves them. Going back never is.
        if batch.base_offset < next_offset or batch.last_offset_delta < 0:
            raise KafkaError(
                KafkaCode.OFFSET_OUT_OF_RANGE,
                f"batch at offset {batch.base_offset}, the log ends at {next_offset}",
            )
        next_offset = batch.next_offset
    return batches


def recompressed(batch: BatchView, config: LogConfig) -> BatchView:
    """The batch, with the topic's codec."""
    codec = config.compression_type
    assert codec is not None
    try:
        rewritten = recompress(batch, codec, limit_bytes=DECODED_BYTES_MAX)
    except ValueError as error:
        raise KafkaError(KafkaCode.CORRUPT_MESSAGE, f"records cannot be read: {error}") from error
    if len(rewritten) > config.max_message_bytes:
        raise KafkaError(
            KafkaCode.MESSAGE_TOO_LARGE,
            f"batch is {len(rewritten)} bytes under compression.type={codec.name.lower()}",
        )
    return BatchView(memoryview(rewritten))


def _split(data: memoryview) -> list[BatchView]:
    try:
        return list(split_batches(data))
    except ValueError as error:
        raise KafkaError(KafkaCode.CORRUPT_MESSAGE, str(error)) from error
