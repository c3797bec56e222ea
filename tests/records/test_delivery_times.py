"""What headers say about the time of delivery, per record and per batch."""

import pytest

from millstream.model import Codec
from millstream.records import delivery_times
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.delivery_times import (
    NEVER_MS,
    NOT_AFTER,
    NOT_BEFORE,
    BatchTimes,
    RecordTimes,
    headers_for,
    times_of_batch,
    times_of_records,
)
from millstream.records.records import Record

Headers = list[tuple[str, bytes | None]]


def batch_of(*headers: Headers, codec: Codec = Codec.NONE) -> BatchView:
    records = [Record(5 + n, 0, None, b"v", list(each)) for n, each in enumerate(headers)]
    return BatchView(memoryview(build_batch(records, base_offset=5, codec=codec)))


def found_in(batch: BatchView) -> list[RecordTimes]:
    return times_of_records([batch], bytes(batch.bytes))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_records_with_times_are_found(codec: Codec) -> None:
    batch = batch_of([], [(NOT_BEFORE, b"100")], [("x", b"1"), (NOT_AFTER, b"200")], codec=codec)
    assert found_in(batch) == [RecordTimes(6, 100, NEVER_MS), RecordTimes(7, 0, 200)]
    assert times_of_batch(batch) == BatchTimes(100, NEVER_MS)


def test_a_batch_is_due_with_its_last_record_and_expires_with_it() -> None:
    both = [
        [(NOT_BEFORE, b"100"), (NOT_AFTER, b"300")],
        [(NOT_BEFORE, b"200"), (NOT_AFTER, b"250")],
    ]
    assert times_of_batch(batch_of(*both)) == BatchTimes(200, 300)  # type: ignore[arg-type]
    assert times_of_batch(batch_of([])) == BatchTimes(0, NEVER_MS)


@pytest.mark.parametrize(
    "value", [None, b"", b"-1", b"soon", b"1.5", b" 7", b"1" * 19, "٣".encode()]
)
def test_what_is_not_a_time_counts_as_absent(value: bytes | None) -> None:
    batch = batch_of([(NOT_BEFORE, value), (NOT_AFTER, value)])
    assert found_in(batch) == []
    assert times_of_batch(batch) == BatchTimes(0, NEVER_MS)


def test_the_last_header_of_a_name_counts() -> None:
    assert found_in(batch_of([(NOT_BEFORE, b"1"), (NOT_BEFORE, b"2")])) == [
        RecordTimes(5, 2, NEVER_MS)
    ]


def test_a_batch_that_unpacks_to_too_much_is_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = batch_of([(NOT_BEFORE, b"100")], codec=Codec.GZIP)
    monkeypatch.setattr(delivery_times, "UNPACKED_BYTES_MAX", 10)
    assert found_in(batch) == []


def test_headers_of_a_producer_are_read_back() -> None:
    headers: Headers = [*headers_for(not_before_ms=1, not_after_ms=2)]
    assert found_in(batch_of(headers)) == [RecordTimes(5, 1, 2)]
    assert headers_for(not_before_ms=None, not_after_ms=None) == []
