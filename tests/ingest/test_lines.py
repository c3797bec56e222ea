from hypothesis import given
from hypothesis import strategies as st

from millstream.ingest.lines import LineSplitter


def test_a_line_without_its_end_waits() -> None:
    splitter = LineSplitter(position=10, line_bytes_max=100)
    assert splitter.split(b"one\r\ntw")[0].data == b"one"
    assert splitter.next_position == 17
    [line] = splitter.split(b"o\n")
    assert (line.data, line.end_position) == (b"two", 19)


def test_the_last_line_needs_no_newline() -> None:
    splitter = LineSplitter(position=0, line_bytes_max=100)
    assert splitter.split(b"end") == []
    [line] = splitter.flush()
    assert (line.data, line.end_position) == (b"end", 3)
    assert splitter.flush() == []


def test_a_long_line_comes_in_pieces_and_all_of_it() -> None:
    splitter = LineSplitter(position=0, line_bytes_max=4)
    lines = splitter.split(b"abcdefghij\nk\n")
    assert [line.data for line in lines] == [b"abcd", b"efgh", b"ij", b"k"]
    assert [line.is_complete for line in lines] == [False, False, True, True]


@given(
    st.lists(st.binary(max_size=30).map(lambda each: each.replace(b"\r", b"")), max_size=20),
    st.integers(1, 12),
)
def test_nothing_is_lost_however_the_bytes_arrive(parts: list[bytes], limit: int) -> None:
    splitter = LineSplitter(position=0, line_bytes_max=limit)
    lines = [line for part in parts for line in splitter.split(part)] + splitter.flush()
    joined = b"".join(line.data + (b"\n" if line.is_complete else b"") for line in lines)
    assert joined.rstrip(b"\n") == b"".join(parts).rstrip(b"\n")
    ends = [line.end_position for line in lines]
    assert ends == sorted(ends)
    assert not ends or ends[-1] == len(b"".join(parts))
