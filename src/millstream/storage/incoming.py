"""What an append is given, made ready for the log: split, checked, recompressed."""

from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import MAGIC, BatchView, split_batches
from millstream.records.builder import recompress
from millstream.records.validation import DECODED_BYTES_MAX, BatchRules, check_produced
from millstream.storage.values import LogConfig


def produced_batches(data: memoryview, rules: BatchRules, now_ms: int) -> list[BatchView]:
    """Several batches from one client. Not for idempotent producers: they send one each."""
    batches = [BatchView(batch.bytes) for batch in _split(data)]
    for batch in batches:
        check_produced(batch, rules, now_ms)
        if batch.producer_id >= 0:
            raise KafkaError(
                KafkaCode.INVALID_RECORD, "an idempotent producer sends one batch at a time"
            )
    return batches


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
    """The batch under the codec that the topic asks for."""
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
