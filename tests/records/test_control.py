"""Markers that end a transaction."""

import pytest

from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_marker,
    read_end_marker,
)
from millstream.records.records import Record, read_records


@pytest.mark.parametrize("ending", list(ControlType))
def test_a_marker_round_trips(ending: ControlType) -> None:
    marker = EndTransactionMarker(ending, coordinator_epoch=12)
    data = build_end_marker(
        marker, base_offset=7, producer_id=3, producer_epoch=2, timestamp_ms=99, leader_epoch=1
    )
    batch = BatchView(memoryview(data))
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.base_sequence, batch.next_offset) == (-1, 8)
    assert read_end_marker(batch) == marker


def test_a_marker_has_kafkas_key_and_value() -> None:
    data = build_end_marker(
        EndTransactionMarker(ControlType.COMMIT, coordinator_epoch=12),
        base_offset=0,
        producer_id=3,
        producer_epoch=2,
        timestamp_ms=99,
    )
    (record,) = read_records(BatchView(memoryview(data)), limit_bytes=1000)
    assert record.key == b"\x00\x00\x00\x01"
    assert record.value == b"\x00\x00\x00\x00\x00\x0c"


def control_batch(key: bytes | None, value: bytes | None) -> BatchView:
    data = build_batch([Record(0, 1, key, value)], base_offset=0, is_control=True)
    return BatchView(memoryview(data))


def test_control_records_of_another_kind_are_none_of_our_business() -> None:
    assert read_end_marker(control_batch(b"\x00\x00\x00\x02", b"leader change")) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\x00", b""), (b"\x00\x00\x00\x01", None)]
)
def test_a_marker_without_its_fields_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ValueError):
        read_end_marker(control_batch(key, value))
