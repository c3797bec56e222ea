"""Rows in columns become the records that were meant, whichever implementation does it."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from millstream.model import Codec
from millstream.records.batch import BatchView
from millstream.records.columns import decode
from millstream.records.records import Record, read_records
from millstream.records.row_columns import HeadersColumn, StringColumn
from millstream.records.rows import (
    COMPILED,
    IMPLEMENTATION,
    PURE,
    Implementation,
    Producer,
    build_batch_of_rows,
)

Header = tuple[bytes, bytes | None]


def column_of(strings: list[bytes | None], *, slack: int = 0) -> StringColumn:
    """As Arrow would hold it; with `slack` it begins inside a larger array."""
    every: list[bytes | None] = [b"not ours"] * slack + strings
    validity = bytearray((len(every) + 7) // 8)
    ends = array("i", [0])
    data = bytearray()
    for index, string in enumerate(every):
        if string is not None:
            validity[index // 8] |= 1 << index % 8
            data += string
        ends.append(len(data))
    return StringColumn(bytes(validity), memoryview(ends), bytes(data), slack)


def headers_of(rows: list[list[Header] | None]) -> HeadersColumn:
    flat = [header for row in rows for header in row or []]
    validity = bytearray((len(rows) + 7) // 8)
    ends = array("i", [0])
    for index, row in enumerate(rows):
        if row is not None:
            validity[index // 8] |= 1 << index % 8
        ends.append(ends[-1] + len(row or []))
    names = column_of([name for name, _ in flat])
    values = column_of([value for _, value in flat])
    return HeadersColumn(bytes(validity), memoryview(ends), 0, names, values)


def numbers(rows: list[int]) -> memoryview:
    return memoryview(array("q", rows))


def records_in(encoded: bytes, count: int) -> list[Record]:
    parts = build_batch_of_rows(
        encoded,
        count,
        timestamp_ms=1_000,
        codec=Codec.NONE,
        producer=Producer(),
        base_sequence=-1,
    )
    view = BatchView(memoryview(b"".join(parts)))
    assert view.crc_is_valid()
    return read_records(view, limit_bytes=1 << 30)


strings = st.one_of(st.none(), st.binary(max_size=200))
rows = st.lists(
    st.tuples(
        strings,
        strings,
        st.one_of(st.none(), st.lists(st.tuples(st.binary(max_size=9), strings), max_size=3)),
    ),
    min_size=1,
    max_size=30,
)


@pytest.fixture(params=[PURE, COMPILED], ids=["pure", "compiled"])
def implementation(request: pytest.FixtureRequest) -> Implementation:
    if request.param is None:
        pytest.skip("no compiled module in this install")
    return request.param


@given(rows, st.integers(0, 3))
def test_records_are_the_rows_in_the_order_asked_for(
    given_rows: list[tuple[bytes | None, bytes | None, list[Header] | None]], slack: int
) -> None:
    encoder = IMPLEMENTATION.RowEncoder(
        column_of([key for key, _, _ in given_rows], slack=slack),
        column_of([value for _, value, _ in given_rows], slack=slack),
        None,
    )
    order = list(reversed(range(len(given_rows))))
    encoded, end = encoder.encode(numbers(order), 0, 1 << 20)
    assert end == len(order)
    found = records_in(encoded, len(order))
    assert [(r.key, r.value) for r in found] == [given_rows[row][:2] for row in order]
    assert [r.offset for r in found] == list(range(len(order)))


@given(rows, st.integers(1, 400))
def test_compiled_and_pure_give_the_same_bytes(
    given_rows: list[tuple[bytes | None, bytes | None, list[Header] | None]], bytes_max: int
) -> None:
    columns = (
        column_of([key for key, _, _ in given_rows]),
        column_of([value for _, value, _ in given_rows]),
        headers_of([headers for _, _, headers in given_rows]),
    )
    one, other = PURE.RowEncoder(*columns), IMPLEMENTATION.RowEncoder(*columns)
    every = numbers(list(range(len(given_rows))))
    start = 0
    while start < len(every):
        encoded, end = one.encode(every, start, bytes_max)
        assert other.encode(every, start, bytes_max) == (encoded, end)
        start = end
    count = len(given_rows)
    assert one.partitions(count, 7) == other.partitions(count, 7)


def test_headers_arrive_with_their_row(implementation: Implementation) -> None:
    encoder = implementation.RowEncoder(
        None,
        column_of([b"a", b"b", b"c"]),
        headers_of([[(b"h", b"1"), (b"h", None)], None, [(b"", b"")]]),
    )
    encoded, _ = encoder.encode(numbers([0, 1, 2]), 0, 1 << 20)
    found = records_in(encoded, 3)
    assert [list(r.headers) for r in found] == [[("h", b"1"), ("h", None)], [], [("", b"")]]
    assert [r.key for r in found] == [None] * 3


def test_a_batch_ends_before_it_gets_too_large_but_takes_one_row_at_least(
    implementation: Implementation,
) -> None:
    encoder = implementation.RowEncoder(None, column_of([b"x" * 100] * 10), None)
    encoded, end = encoder.encode(numbers(list(range(10))), 0, 250)
    assert (end, len(records_in(encoded, 2))) == (2, 2)
    _, end = encoder.encode(numbers(list(range(10))), 5, 10)
    assert end == 6


@given(st.binary(max_size=100))
def test_keys_go_where_kafkas_partitioner_sends_them(key: bytes) -> None:
    expected = array("i", [(murmur2(key) & 0x7FFFFFFF) % 12]).tobytes()
    for each in (PURE, IMPLEMENTATION):
        assert each.RowEncoder(column_of([key]), column_of([None]), None).partitions(1, 12) == (
            expected
        )


def test_a_row_that_is_not_there_is_refused() -> None:
    encoder = IMPLEMENTATION.RowEncoder(None, column_of([b"x"]), None)
    with pytest.raises((ValueError, IndexError)):
        encoder.encode(numbers([1]), 0, 100)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_carries_its_producer_and_codec(codec: Codec) -> None:
    encoder = IMPLEMENTATION.RowEncoder(column_of([b"k"]), column_of([b"v" * 500]), None)
    encoded, _ = encoder.encode(numbers([0]), 0, 1 << 20)
    parts = build_batch_of_rows(
        encoded,
        1,
        timestamp_ms=7,
        codec=codec,
        producer=Producer(9, 3, is_transactional=True),
        base_sequence=5,
    )
    batch = b"".join(parts)
    view = BatchView(memoryview(batch))
    assert view.crc_is_valid()
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (9, 3, 5)
    assert view.is_transactional
    assert view.codec is codec
    assert decode(batch).value_data == b"v" * 500


@pytest.mark.parametrize("implementation", [PURE, IMPLEMENTATION])
def test_rows_are_grouped_by_number_and_keep_their_order(implementation: Implementation) -> None:
    rows, numbers = memoryview(array("q", [7, 3, 9, 4])), memoryview(array("i", [2, 0, 2, 0]))
    ordered, counts = implementation.grouped(rows, numbers, 3)
    assert list(memoryview(ordered).cast("q")) == [3, 4, 7, 9]
    assert counts == [(0, 2), (2, 2)]
    assert implementation.grouped(rows[:0], numbers[:0], 1) == (b"", [])
    for wrong in ([-1], [3]):
        with pytest.raises(ValueError, match="no group"):
            implementation.grouped(rows[:1], memoryview(array("i", wrong)), 3)
    with pytest.raises(ValueError, match="each row"):
        implementation.grouped(rows, numbers[:1], 3)
