"""What headers say about the time of delivery, per record and per batch."""

import pytest

from millstream.model import Codec
from millstream.records import delivery_times
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.compression import TooLarge
from millstream.records.delivery_times import (
    NEVER_MS,
    NO_TIMES,
    NOT_AFTER,
    NOT_BEFORE,
    RecordTimes,
    headers_for,
    may_have_times,
    search,
    search_records,
    unpacked,
)
from millstream.records.records import Record
from millstream.records.walking import IMPLEMENTATION, PURE

Headers = list[tuple[str, bytes | None]]


def batch_of(*headers: Headers, codec: Codec = Codec.NONE) -> BatchView:
    records = [Record(5 + n, 0, None, b"v", list(each)) for n, each in enumerate(headers)]
    return BatchView(memoryview(build_batch(records, base_offset=5, codec=codec)))


def found_in(batch: BatchView) -> list[RecordTimes]:
    return list(search(batch).since(0))


def of_all(batch: BatchView) -> tuple[int, int]:
    found = search(batch)
    return found.due_ms, found.expired_after_ms


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_records_with_times_are_found(codec: Codec) -> None:
    batch = batch_of([], [(NOT_BEFORE, b"100")], [("x", b"1"), (NOT_AFTER, b"200")], codec=codec)
    assert found_in(batch) == [RecordTimes(6, 100, NEVER_MS), RecordTimes(7, 0, 200)]
    assert of_all(batch) == (100, NEVER_MS)


def test_a_batch_is_due_with_its_last_record_and_expires_with_it() -> None:
    both = [
        [(NOT_BEFORE, b"100"), (NOT_AFTER, b"300")],
        [(NOT_BEFORE, b"200"), (NOT_AFTER, b"250")],
    ]
    assert of_all(batch_of(*both)) == (200, 300)  # type: ignore[arg-type]
    assert of_all(batch_of([])) == (0, NEVER_MS)


@pytest.mark.parametrize(
    "value", [None, b"", b"-1", b"soon", b"1.5", b" 7", b"1" * 19, "٣".encode()]
)
def test_what_is_not_a_time_counts_as_absent(value: bytes | None) -> None:
    batch = batch_of([(NOT_BEFORE, value), (NOT_AFTER, value)])
    assert found_in(batch) == []
    assert of_all(batch) == (0, NEVER_MS)


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


def test_the_python_search_finds_the_same() -> None:
    headers: list[Headers] = [
        [("a", None), (NOT_BEFORE, b"%d" % n), (NOT_AFTER, b"x" if n % 3 else b"%d" % (n + 9))]
        for n in range(40)
    ]
    batch = batch_of([], *headers)
    compiled, pure = search(batch), search_records(batch, batch.records, PURE)
    assert list(compiled.since(0)) == list(pure.since(0))
    assert (compiled.due_ms, compiled.expired_after_ms) == (pure.due_ms, pure.expired_after_ms)
    assert [one.offset for one in compiled.since(44)] == [44, 45]
    assert compiled.size_bytes == 40 * 24


def test_records_behind_a_damaged_one_have_no_times() -> None:
    batch = batch_of([(NOT_BEFORE, b"100")], [(NOT_BEFORE, b"200")])
    damaged = bytearray(batch.records)
    # The length of the second record.
    damaged[len(damaged) // 2] ^= 0x7F
    for implementation in (PURE, IMPLEMENTATION):
        found = search_records(batch, damaged, implementation)
        assert list(found.since(0)) == [RecordTimes(5, 100, NEVER_MS)]


def test_a_batch_with_a_wrong_count_has_no_times() -> None:
    batch = batch_of([(NOT_BEFORE, b"100")])
    batch.record_count = 2**31 - 1
    assert search(batch) is NO_TIMES


def test_a_quick_look_tells_where_nothing_has_to_be_searched() -> None:
    plain, timed = batch_of([("x", b"1")]), batch_of([(NOT_AFTER, b"1")])
    packed = batch_of([], codec=Codec.ZSTD)
    looks = [may_have_times([one], bytes(one.bytes)) for one in (plain, timed, packed)]
    assert looks == [False, True, True]
    assert bytes(unpacked(packed, limit_bytes=1_000)) == bytes(batch_of([]).records)
    with pytest.raises(TooLarge):
        unpacked(timed, limit_bytes=10)
