"""Records go into a batch and come out the same, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import Codec
from millstream.records import records as records_module
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.builder import build_batch, write_varint
from millstream.records.records import (
    HEADERS_MAX,
    Record,
    iterate_records,
    read_records,
    read_varint,
)

LIMIT_BYTES = 1 << 20

payloads = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    count = draw(st.integers(1, 8))
    return [
        Record(
            7 + index, draw(st.integers(0, 2**41)), draw(payloads), draw(payloads), draw(headers)
        )
        for index in range(count)
    ]


@given(record_lists(), st.sampled_from(Codec))
def test_every_codec_gives_back_the_same_records(records: list[Record], codec: Codec) -> None:
    batch = BatchView(memoryview(build_batch(records, base_offset=7, codec=codec)))
    assert batch.crc_is_valid()
    assert batch.codec is codec
    assert batch.next_offset == records[-1].offset + 1
    assert read_records(batch, limit_bytes=LIMIT_BYTES) == records


@given(record_lists(), st.data())
def test_a_changed_byte_is_decoded_or_refused_but_never_crashes(
    records: list[Record], data: st.DataObject
) -> None:
    raw = build_batch(records, base_offset=7)
    position = data.draw(st.integers(HEADER_BYTES - 4, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = read_records(BatchView(memoryview(raw)), limit_bytes=LIMIT_BYTES)
    except ValueError:
        return
    assert len(read) == len(records)


def test_records_before_an_offset_are_passed_over() -> None:
    records = [Record(7 + number, number, None, b"%d" % number) for number in range(5)]
    batch = BatchView(memoryview(build_batch(records, base_offset=7)))
    for offset in range(6, 13):
        found = iterate_records(batch, limit_bytes=LIMIT_BYTES, from_offset=offset)
        assert list(found) == records[max(offset - 7, 0) :]


def test_a_record_with_far_too_many_headers_is_refused_and_can_be_passed_over() -> None:
    bomb = Record(1, 0, None, None, [("", b"")] * (HEADERS_MAX + 1))
    content = [
        Record(0, 0, None, b"a", [("h", None)] * HEADERS_MAX),
        bomb,
        Record(2, 0, b"k", b"c"),
    ]
    batch = BatchView(memoryview(build_batch(content, base_offset=0, codec=Codec.ZSTD)))
    assert batch.size_bytes < 1000
    found = iterate_records(batch, limit_bytes=LIMIT_BYTES)
    assert next(found) == content[0]
    with pytest.raises(ValueError, match="record at offset 1 has 10001 headers, up to 10000 are"):
        next(found)
    behind = iterate_records(batch, limit_bytes=LIMIT_BYTES, from_offset=2)
    assert list(behind) == content[2:]


def test_headers_are_bounded_in_all_records_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "BATCH_HEADERS_MAX", 10)
    content = [Record(number, 0, None, b"a", [("h", None)] * 4) for number in range(3)]
    batch = BatchView(memoryview(build_batch(content, base_offset=0)))
    found = iterate_records(batch, limit_bytes=LIMIT_BYTES)
    assert [next(found).offset, next(found).offset] == [0, 1]
    with pytest.raises(ValueError, match="more than 10 headers up to offset 2"):
        next(found)


def test_a_list_has_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    content = [Record(number, 0, None, b"a") for number in range(3)]
    batch = BatchView(memoryview(build_batch(content, base_offset=0)))
    for most in (3, 2):
        monkeypatch.setattr(records_module, "RECORDS_MAX", most)
        if most == 3:
            assert read_records(batch, limit_bytes=LIMIT_BYTES) == content
        else:
            with pytest.raises(ValueError, match="3 records, up to 2 are read"):
                read_records(batch, limit_bytes=LIMIT_BYTES)


def test_bytes_after_the_last_record_are_refused() -> None:
    raw = build_batch([Record(0, 1, None, b"v")], base_offset=0)
    raw += b"\x00"
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    with pytest.raises(ValueError, match="after the last record"):
        read_records(BatchView(memoryview(raw)), limit_bytes=LIMIT_BYTES)


def test_a_count_larger_than_the_bytes_is_refused_before_decoding() -> None:
    raw = build_batch([Record(0, 1, None, b"v")], base_offset=0)
    raw[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(ValueError, match="2147483647 records"):
        read_records(BatchView(memoryview(raw)), limit_bytes=LIMIT_BYTES)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip_over_the_whole_range(number: int) -> None:
    encoded = bytearray()
    write_varint(encoded, number)
    assert read_varint(encoded, 0, bytes_max=10) == (number, len(encoded))


def test_a_varint_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        read_varint(b"\xff" * 11, 0)
