"""Which error of the transaction coordinator a client gets, by request and version.

A producer that was fenced, because a newer one has its id or its transaction timed out, gets

    InitProducerId                                PRODUCER_FENCED from 4 on
    AddPartitionsToTxn, AddOffsetsToTxn, EndTxn   PRODUCER_FENCED from 2 on
    earlier versions of these                     INVALID_PRODUCER_EPOCH
    Produce, TxnOffsetCommit                      always INVALID_PRODUCER_EPOCH

TRANSACTION_ABORTABLE and what a client may retry are newer than some versions too.
"""

from typing import Final

from millstream.errors import KafkaCode

# From here on, the first write adds a partition to the transaction (KIP-890).
PRODUCE_ADDS_FROM: Final = 12
OFFSET_COMMIT_ADDS_FROM: Final = 5

_INIT_KNOWS_FENCED_FROM: Final = 4
_KNOWS_FENCED_FROM: Final = 2
_PRODUCE_KNOWS_ABORTABLE_FROM: Final = 11
_OFFSET_COMMIT_KNOWS_ABORTABLE_FROM: Final = 4
_ADD_PARTITIONS_KNOWS_ABORTABLE_FROM: Final = 5
# The coordinator cannot say; producers treat NOT_ENOUGH_REPLICAS as retriable.
_RETRIABLE: Final = frozenset(
    {
        KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaCode.COORDINATOR_NOT_AVAILABLE,
        KafkaCode.NOT_COORDINATOR,
    }
)


def init_producer_id_code(code: KafkaCode, version: int) -> KafkaCode:
    return code if version >= _INIT_KNOWS_FENCED_FROM else _without_fenced(code)


def end_txn_code(code: KafkaCode, version: int) -> KafkaCode:
    return code if version >= _KNOWS_FENCED_FROM else _without_fenced(code)


def add_offsets_code(code: KafkaCode, version: int) -> KafkaCode:
    return code if version >= _KNOWS_FENCED_FROM else _without_fenced(code)


def add_partitions_code(code: KafkaCode, version: int) -> KafkaCode:
    if version < _ADD_PARTITIONS_KNOWS_ABORTABLE_FROM:
        code = _without_abortable(code)
    return code if version >= _KNOWS_FENCED_FROM else _without_fenced(code)


def offset_commit_code(code: KafkaCode, version: int) -> KafkaCode:
    """Of TxnOffsetCommit."""
    if version < _OFFSET_COMMIT_KNOWS_ABORTABLE_FROM:
        code = _without_abortable(code)
    if code is KafkaCode.CONCURRENT_TRANSACTIONS and version < OFFSET_COMMIT_ADDS_FROM:
        # Clients retry after this one.
        return KafkaCode.COORDINATOR_LOAD_IN_PROGRESS
    return _without_fenced(code)


def produce_code(code: KafkaCode, version: int) -> KafkaCode:
    if code in _RETRIABLE:
        return KafkaCode.NOT_ENOUGH_REPLICAS
    if code is KafkaCode.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS_FROM:
        return KafkaCode.NOT_ENOUGH_REPLICAS
    if version < _PRODUCE_KNOWS_ABORTABLE_FROM:
        code = _without_abortable(code)
    return _without_fenced(code)


def _without_fenced(code: KafkaCode) -> KafkaCode:
    return KafkaCode.INVALID_PRODUCER_EPOCH if code is KafkaCode.PRODUCER_FENCED else code


def _without_abortable(code: KafkaCode) -> KafkaCode:
    return KafkaCode.INVALID_TXN_STATE if code is KafkaCode.TRANSACTION_ABORTABLE else code
