"""Records are walked over alike by the compiled loop and by Python, whatever the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.records.batch import HEADER_BYTES
from millstream.records.builder import build_key_values
from millstream.records.walking import (
    COMPILED,
    PURE,
    Implementation,
    Problem,
    Walked,
    find_time,
    walk,
)

IMPLEMENTATIONS = [PURE, *([COMPILED] if COMPILED is not None else [])]
NOW_MS = 1_000_000
FAR = 2**62


def walked(data: bytes, count: int, implementation: Implementation, **terms: object) -> Walked:
    largest_ms = {"max_timestamp_ms": NOW_MS}
    wanted = {"earliest_ms": 0, "latest_ms": FAR, "needs_key": False, **largest_ms, **terms}
    # In the midst of something else, as the records of a batch are.
    around = b"<" + data + b">"
    found = walk(
        around,
        1,
        1 + len(data),
        count,
        base_timestamp_ms=NOW_MS,
        implementation=implementation,
        **wanted,
    )  # type: ignore[arg-type]
    return found or Walked(Problem.NONE, max(count, 0), [], 0, [], 0, NOW_MS)


def varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def record(
    delta: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    time: int = 0,
    tail: bytes = b"\0",
) -> bytes:
    def text(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(time) + varint(delta) + text(key) + text(value) + tail
    return varint(len(body)) + body


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda each: each.NAME)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    found: Implementation = request.param
    return found


def test_both_are_tried() -> None:
    assert COMPILED is not None, "the compiled loop is missing: pip install -e . with a compiler"


def test_good_records_have_no_problem(implementation: Implementation) -> None:
    data = (
        record(0)
        + record(1, None, None)
        + record(2, tail=varint(1) + varint(1) + b"h" + varint(-1))
    )
    found = walked(data, 3, implementation)
    assert (found.problem, found.index) == (Problem.NONE, 3)


@pytest.mark.parametrize(
    ("data", "count", "problem", "index"),
    [
        (b"", 1, Problem.ENDS_EARLY, 0),
        (record(0), 2, Problem.ENDS_EARLY, 1),
        (record(0), 2**31 - 1, Problem.ENDS_EARLY, 1),
        (record(0) + b"x", 1, Problem.BYTES_LEFT, 1),
        (record(0)[:-1], 1, Problem.BAD_SIZE, 0),
        (varint(-5) + b"garbage", 1, Problem.BAD_SIZE, 0),
        (b"\0", 1, Problem.ENDS_EARLY, 0),
        (b"\xff" * 6, 1, Problem.BAD_NUMBER, 0),
        (record(1), 1, Problem.BAD_OFFSET, 0),
        (record(0) + record(0), 2, Problem.BAD_OFFSET, 1),
        (record(0, tail=varint(-1)), 1, Problem.BAD_HEADERS, 0),
        (record(0, tail=varint(60_000_000)), 1, Problem.BAD_HEADERS, 0),
        (record(0, tail=varint(1) + varint(-1) + varint(-1)), 1, Problem.BAD_HEADERS, 0),
        (record(0, tail=varint(1) + varint(9) + b"h"), 1, Problem.BAD_SIZE, 0),
        (record(0, tail=b"\0\0"), 1, Problem.BAD_SIZE, 0),
        (record(0, tail=b""), 1, Problem.ENDS_EARLY, 0),
    ],
)
def test_what_nobody_could_read_is_found(
    data: bytes, count: int, problem: Problem, index: int, implementation: Implementation
) -> None:
    found = walked(data, count, implementation)
    assert (found.problem, found.index) == (problem, index)
    assert str(index) in found.text or problem is Problem.NONE


def test_keys_and_times_are_counted_and_the_first_are_kept(implementation: Implementation) -> None:
    data = b"".join(record(number, None, time=number) for number in range(300))
    found = walked(data, 300, implementation, latest_ms=NOW_MS + 99, needs_key=True)
    assert (found.null_key_count, found.bad_time_count) == (300, 200)
    assert found.null_keys == list(range(128))
    assert found.bad_times[0] == (100, NOW_MS + 100)
    assert len(found.bad_times) == 128


@pytest.mark.parametrize(
    ("times", "largest_ms"),
    [((3, 9, 5), NOW_MS + 9), ((-NOW_MS - 1,), -1), ((-NOW_MS - 7, -NOW_MS - 1), -1)],
)
def test_the_largest_timestamp_is_compared_with_what_the_header_says(
    times: tuple[int, ...], largest_ms: int, implementation: Implementation
) -> None:
    data = b"".join(record(number, time=time) for number, time in enumerate(times))
    terms = {"base_timestamp_ms": NOW_MS, "earliest_ms": -FAR, "latest_ms": FAR}

    def found(max_timestamp_ms: int) -> Walked | None:
        return walk(
            *(data, 0, len(data), len(times)),
            max_timestamp_ms=max_timestamp_ms,
            needs_key=False,
            implementation=implementation,
            **terms,
        )

    assert found(largest_ms) is None
    for other_ms in (largest_ms - 1, largest_ms + 1, 2**63 - 1):
        walked_over = found(other_ms)
        assert walked_over is not None
        assert walked_over.problem is Problem.NONE
        assert walked_over.max_timestamp_ms == largest_ms


def test_records_outside_of_the_data_are_not_looked_for(implementation: Implementation) -> None:
    for start, stop in ((-1, 2), (2, 1), (0, 99)):
        with pytest.raises(ValueError, match="outside"):
            implementation.walk_records(b"ab", start, stop, 1, 0, 0, 0, 0, False)


def test_what_the_builder_makes_is_right(implementation: Implementation) -> None:
    batch = build_key_values([(b"k", b"v"), (b"l", None)], timestamp_ms=NOW_MS)
    assert walked(batch[HEADER_BYTES:], 2, implementation).problem is Problem.NONE


pieces = some.one_of(
    some.binary(max_size=12),
    some.builds(
        record,
        some.integers(-1, 3),
        some.none() | some.binary(max_size=4),
        some.none() | some.binary(max_size=4),
        some.integers(-(2**63), 2**63 - 1),
        some.binary(max_size=6) | some.just(b"\0"),
    ),
)


@given(data=some.lists(pieces, max_size=5).map(b"".join), count=some.integers(-1, 6))
def test_both_find_the_same_in_any_bytes(data: bytes, count: int) -> None:
    found = [
        walked(data, count, each, latest_ms=NOW_MS, needs_key=True) for each in IMPLEMENTATIONS
    ]
    assert found[0] == found[-1]


def test_the_first_record_at_a_time_is_found(implementation: Implementation) -> None:
    # Compaction leaves gaps between offsets.
    data = record(0, time=5) + record(3, time=30) + record(7, time=20) + record(9, time=30)

    def at(after_ms: int, delta_min: int = 0) -> tuple[int, int] | None:
        return find_time(
            data,
            4,
            base_timestamp_ms=NOW_MS,
            timestamp_ms=NOW_MS + after_ms,
            delta_min=delta_min,
            implementation=implementation,
        )

    assert at(0) == (0, NOW_MS + 5)
    assert at(6) == (3, NOW_MS + 30)
    assert at(6, delta_min=4) == (7, NOW_MS + 20)
    assert at(30, delta_min=4) == (9, NOW_MS + 30)
    assert at(31) is None


@given(data=some.binary(max_size=40), count=some.integers(0, 5), delta_min=some.integers(0, 9))
def test_both_find_the_same_time_in_any_bytes(data: bytes, count: int, delta_min: int) -> None:
    found = [each.find_time(data, count, 0, 3, delta_min) for each in IMPLEMENTATIONS]
    assert all(each[:2] == found[0][:2] for each in found)


@given(data=some.binary(max_size=60), count=some.integers(0, 5))
def test_both_find_the_same_delivery_times_in_any_bytes(data: bytes, count: int) -> None:
    # With names of one letter they occur.
    found = [each.find_delivery_times(data, count, b"a", b"b") for each in IMPLEMENTATIONS]
    assert all(each == found[0] for each in found)


@given(
    headers=some.lists(
        some.lists(
            some.tuples(
                some.sampled_from([b"a", b"b", b"c"]),
                some.none() | some.sampled_from([b"", b"0", b"7", b"9" * 18, b"9" * 19, b"-1"]),
            ),
            max_size=4,
        ),
        max_size=6,
    ),
    cut=some.integers(0, 9),
)
def test_both_find_the_same_delivery_times_in_records(
    headers: list[list[tuple[bytes, bytes | None]]], cut: int
) -> None:
    def tail(of: list[tuple[bytes, bytes | None]]) -> bytes:
        found = [
            varint(len(name)) + name + (varint(-1) if v is None else varint(len(v)) + v)
            for name, v in of
        ]
        return varint(len(of)) + b"".join(found)

    data = b"".join(record(2 * n, tail=tail(of)) for n, of in enumerate(headers))
    data = data[: max(len(data) - cut, 0)]
    results = [each.find_delivery_times(data, len(headers), b"a", b"b") for each in IMPLEMENTATIONS]
    assert all(each == results[0] for each in results)
