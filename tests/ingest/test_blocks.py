"""Blocks of lines as one record each, however they arrive."""

from millstream.ingest.blocks import BlockJoiner
from millstream.ingest.lines import Line
from millstream.ingest.traces import RECORD_BYTES_MAX


def join_at_once(*texts: bytes) -> list[bytes]:
    joiner = BlockJoiner(b"Start: ")
    lines = joiner.join(Line(text, 0) for text in texts)
    return [line.data for line in [*lines, *joiner.flush()]]


def test_a_block_ends_where_the_next_one_begins() -> None:
    found = join_at_once(b"Start: 1", b"a", b"", b"b", b"Start: 2", b"Start: 3", b"c")
    assert found == [b"Start: 1\na\nb", b"Start: 2", b"Start: 3\nc"]


def test_a_byte_order_mark_may_precede_the_first_block() -> None:
    mark = b"\xef\xbb\xbf"
    assert join_at_once(mark + b"Start: 1", b"a") == [mark + b"Start: 1\na"]


def test_lines_before_the_first_block_are_records_of_their_own() -> None:
    assert join_at_once(b"a", b"b", b"Start: 1", b"c") == [b"a", b"b", b"Start: 1\nc"]


def test_what_does_not_fit_into_a_record_is_not_lost() -> None:
    half = b"x" * (RECORD_BYTES_MAX // 2)
    found = join_at_once(b"Start: 1", half, half, b"a", b"Start: 2")
    assert found == [b"Start: 1\n" + half, half, b"a", b"Start: 2"]


def test_a_block_that_is_read_in_parts_ends_behind_its_last_line() -> None:
    joiner = BlockJoiner(b"Start: ")
    assert joiner.join([Line(b"Start: 1", 9)]) == []
    assert joiner.join([Line(b"a", 11), Line(b"", 12)]) == []
    assert joiner.join([Line(b"Start: 2", 21)]) == [Line(b"Start: 1\na", 12)]
    assert joiner.flush() == [Line(b"Start: 2", 21)]


def test_lines_of_two_files_and_pieces_of_a_line_are_not_joined() -> None:
    joiner = BlockJoiner(b"Start: ")
    lines = [Line(b"Start: 1", 0), Line(b"a", 0, generation=1)]
    assert joiner.join(lines) == lines
    pieces = [Line(b"Start: 1", 0, is_complete=False), Line(b"a", 0)]
    assert joiner.join(pieces) == pieces
