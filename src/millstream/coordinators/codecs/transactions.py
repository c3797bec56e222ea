"""The records of `__transaction_state`: Kafka's TransactionLogKey 0 and TransactionLogValue 0-1.

We write version 1, as Kafka does once `transaction.version` is 1 or more. One kind of
record is ours: the last batch that was committed for a group of producers. Its key begins
with a number that Kafka does not know, and skips with a warning.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Final

from millstream.coordinators.codecs.table import KeyValue
from millstream.encoding import Reader, Writer
from millstream.lazy_dataclass import dataclass

TRANSACTION_KEY: Final = 0
BATCH_KEY: Final = 20_000
_PREVIOUS_PRODUCER_ID_TAG: Final = 0
_NEXT_PRODUCER_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2
NO_ID: Final = -1


class TransactionStatus(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    # Kafka's DEAD (6) and PREPARE_EPOCH_FENCE (7) exist in its memory only.


# Partitions by topic.
Partitions = Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: Partitions = field(default_factory=dict)
    last_update_ms: int = -1
    start_ms: int = -1
    # The id before its epochs were exhausted, and the one that follows it.
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    # 2: the client expects a new epoch with every transaction (KIP-890).
    client_version: int = 0


@dataclass(slots=True)
class TransactionChange:
    transactional_id: str
    value: StoredTransaction | None


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    # -1 if a run has taken over the group and committed nothing yet.
    number: int
    timestamp_ms: int
    # The run that may commit; empty if none was named.
    run: str = ""
    # Earlier runs, which may no longer commit; the oldest first.
    fenced_runs: tuple[str, ...] = ()


@dataclass(slots=True)
class BatchChange:
    """The last batch that was committed for a group of producers."""

    group: str
    value: CommittedBatch | None


Change = TransactionChange | BatchChange


def encode(change: Change) -> KeyValue:
    key = Writer()
    if isinstance(change, BatchChange):
        key.int16(BATCH_KEY)
        key.string(change.group)
        batch = change.value
        return key.getvalue(), None if batch is None else _encode_batch(batch)
    key.int16(TRANSACTION_KEY)
    key.string(change.transactional_id)
    value = change.value
    return key.getvalue(), None if value is None else _encode_transaction(value)


def decode(key: bytes, value: bytes | None) -> Change | None:
    """The change; None for unknown kinds. Raises ValueError for bad bytes."""
    reader = Reader(key)
    match reader.int16():
        case 0:
            stored = None if value is None else _decode_transaction(value)
            return TransactionChange(reader.string(), stored)
        case 20_000:
            batch = None if value is None else _decode_batch(value)
            return BatchChange(reader.string(), batch)
        case _:
            return None


def _encode_transaction(value: StoredTransaction) -> bytes:
    writer = Writer()
    writer.int16(1)
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(value.timeout_ms)
    writer.int8(value.status)
    if value.status is TransactionStatus.EMPTY:
        writer.compact_array_length(None)
    else:
        writer.compact_array_length(len(value.partitions))
        for topic, indexes in value.partitions.items():
            writer.compact_string(topic)
            writer.compact_array_length(len(indexes))
            for index in sorted(indexes):
                writer.int32(index)
            writer.tagged_fields()
    writer.int64(value.last_update_ms)
    writer.int64(value.start_ms)
    tags = {}
    if value.previous_producer_id != NO_ID:
        tags[_PREVIOUS_PRODUCER_ID_TAG] = value.previous_producer_id.to_bytes(8, "big")
    if value.next_producer_id != NO_ID:
        tags[_NEXT_PRODUCER_ID_TAG] = value.next_producer_id.to_bytes(8, "big")
    if value.client_version:
        tags[_CLIENT_VERSION_TAG] = value.client_version.to_bytes(2, "big")
    writer.tagged_fields(tags)
    return writer.getvalue()


def _decode_transaction(data: bytes) -> StoredTransaction:
    reader = Reader(data)
    version = reader.int16()
    if version not in (0, 1):
        raise ValueError(f"a transaction has version {version}")
    producer_id, epoch = reader.int64(), reader.int16()
    timeout_ms, status = reader.int32(), TransactionStatus(reader.int8())
    partitions: dict[str, frozenset[int]] = {}
    is_flexible = version >= 1
    for _ in range(_count(reader, is_flexible=is_flexible)):
        topic = reader.compact_string() if is_flexible else reader.string()
        count = _count(reader, is_flexible=is_flexible)
        partitions[topic] = frozenset(reader.int32() for _ in range(count))
        if is_flexible:
            reader.tagged_fields()
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tagged_fields() if is_flexible else {}

    def tag(number: int, default: int) -> int:
        found = tags.get(number)
        return default if found is None else int.from_bytes(found, "big", signed=True)

    return StoredTransaction(
        producer_id,
        epoch,
        timeout_ms,
        status,
        partitions,
        last_update_ms,
        start_ms,
        tag(_PREVIOUS_PRODUCER_ID_TAG, NO_ID),
        tag(_NEXT_PRODUCER_ID_TAG, NO_ID),
        tag(_CLIENT_VERSION_TAG, 0),
    )


def _count(reader: Reader, *, is_flexible: bool) -> int:
    length = reader.compact_array_length() if is_flexible else reader.array_length()
    return length or 0


def _encode_batch(batch: CommittedBatch) -> bytes:
    writer = Writer()
    writer.int16(1)
    writer.int64(batch.number)
    writer.int64(batch.timestamp_ms)
    writer.compact_string(batch.run)
    writer.compact_array_length(len(batch.fenced_runs))
    for run in batch.fenced_runs:
        writer.compact_string(run)
    return writer.getvalue()


def _decode_batch(data: bytes) -> CommittedBatch:
    reader = Reader(data)
    version = reader.int16()
    if version not in (0, 1):
        raise ValueError(f"a committed batch has version {version}")
    number, timestamp_ms = reader.int64(), reader.int64()
    if version == 0:
        return CommittedBatch(number, timestamp_ms)
    run = reader.compact_string()
    count = _count(reader, is_flexible=True)
    return CommittedBatch(
        number, timestamp_ms, run, tuple(reader.compact_string() for _ in range(count))
    )
