"""Control records: the markers that end a transaction in a partition.

A control batch holds one record. Its key says what it is (version, type), its value who
decided (version, coordinator epoch). Clients never write these; consumers skip them.
"""

import struct
from enum import IntEnum
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.model import NO_LEADER_EPOCH
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.records import Record, read_records

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_CONTROL_BATCH_BYTES_MAX: Final = 4096


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    type: ControlType
    coordinator_epoch: int


def build_end_marker(
    marker: EndTransactionMarker,
    *,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    record = Record(
        offset=base_offset,
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(0, marker.type),
        value=_VALUE.pack(0, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(batch: BatchView) -> EndTransactionMarker | None:
    """The marker in a control batch; None for control records of another kind.

    Newer types (KRaft's own, for example) are legal and none of our business.
    """
    assert batch.is_control
    records = read_records(batch, limit_bytes=_CONTROL_BATCH_BYTES_MAX)
    if len(records) != 1:
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise ValueError("control record without a type")
    _, type_number = _KEY.unpack_from(key)
    if type_number not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise ValueError("end-of-transaction marker without a coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return EndTransactionMarker(ControlType(type_number), coordinator_epoch)
