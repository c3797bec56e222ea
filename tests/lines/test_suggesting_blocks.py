"""Files whose records are blocks: how one begins, guessed from the lines."""

from millstream.lines.suggesting_blocks import BlockSuggestion, has_times, suggest_blocks


def test_the_first_time_that_comes_again_begins_a_block() -> None:
    block = [b"Log started: 2026-09-21  13:59:58", b"a <b>", b"Log ended: 2026-09-21  14:00:00"]
    assert suggest_blocks(block * 3, record_us=0) == BlockSuggestion(
        "Log started: ", "Log started: <time:%Y-%m-%d %H:%M:%S>\n<message>"
    )


def test_signs_of_patterns_in_the_first_line_are_escaped() -> None:
    found = suggest_blocks([b"<run> 2026-09-21 13:59:58", b"a"] * 2, record_us=0)
    assert found == BlockSuggestion("<run> ", "<<run> <time>\n<message>")


def test_one_block_lines_without_times_and_single_lines_say_nothing() -> None:
    assert suggest_blocks([b"Start: 2026-09-21 13:59:58", b"a", b"b"], record_us=0) is None
    assert suggest_blocks([b"a", b"b"], record_us=0) is None
    assert suggest_blocks([b"at 2026-09-21 13:59:58"] * 4, record_us=0) is None
    assert suggest_blocks([b"13:59:58"] * 4, record_us=0) is None


def test_a_log_by_lines_has_no_blocks_even_if_some_lines_end_with_a_time() -> None:
    lines = [b"at 13:59:58 it ran"] * 9 + [b"rotated 2026-09-21 13:59:58", b"a"] * 2
    assert suggest_blocks(lines, record_us=0) is None


def test_whether_lines_have_times() -> None:
    assert has_times([b"a", b"b at 2026-09-21 13:59:58"])
    assert not has_times([b"a", b"1.2.3 (4)"])
