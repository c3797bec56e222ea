"""Patterns that lines themselves suggest."""

import pytest

from millstream.lines._patterns_pure import read_line
from millstream.lines.line_patterns import compile_pattern
from millstream.lines.suggesting import suggest_pattern

RECORD_US = 1_789_999_200_000_000


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("03-17 16:13:38.8  17  23 D Tag: x", "<time:%m-%d %H:%M:%S.%f> <pid> <tid> <level> "
         "<program>: <message>"),
        ("[10.30 16:49:06] a.exe - b:1 open", "[<time:%m.%d %H:%M:%S>] <program> - <message>"),
        ("20261223-2:15:29:606|Step|30|on 1", "<time:%Y%m%d-%H:%M:%S:%f>|<program>|<pid>|"
         "<message>"),
        ("update-alternatives 2026-09-21 13:59:58: run", "<program> <time>: <message>"),
        ("WARN 2026-09-21 13:59:58 run", "<level> <time> <message>"),
        ("13 node-2 hw state 1077804742 1 up now", "<id> <field1> <field2> <field3> <time:%s> "
         "<pid> <message>"),
        ("2026-09-21 13:59:58,1 INFO [IPC 1 on 2] a.B: c", "<time> <level> [<thread...>] "
         "<program>: <message>"),
        ("21/Sep/2026:13:59:58 +0200 x is y", "<time:%d/%b/%Y:%H:%M:%S %z> <message>"),
        ("9/21/2026 1:59:58 PM [WARN] it is", "<time:%m/%d/%Y %I:%M:%S %p> [<level>] <message>"),
        ("31.12.2026 13:59;ERROR;x y", "<time:%d.%m.%Y %H:%M>;<level>;<message>"),
        ("Mon Sep  1 13:59:58 2026 x y", "<time:%a %b %e %H:%M:%S %Y> <message>"),
        ("13:59:58 [7] x y", "<time:%H:%M:%S> [<pid>] <message>"),
    ],
)  # fmt: skip
def test_what_a_line_suggests_reads_it(line: str, pattern: str) -> None:
    found = suggest_pattern([line.encode() + b"\r"], record_us=RECORD_US)
    assert found is not None
    assert (found.pattern, found.share) == (pattern, 1.0)
    assert read_line([compile_pattern(pattern)], line.encode(), RECORD_US)


def test_the_pattern_of_most_lines_wins() -> None:
    lines = [b"23:59:58 INFO a: b"] * 70 + [b"23:59:58 a word more"] * 20 + [b"\xff", b""] * 5
    found = suggest_pattern(lines, record_us=RECORD_US)
    assert found is not None
    # Both of them begin so.
    assert (found.pattern, found.share) == ("<time:%H:%M:%S> <message>", 0.9)


def test_lines_without_a_time_suggest_nothing() -> None:
    assert suggest_pattern([], record_us=RECORD_US) is None
    assert suggest_pattern([b"\tat a.b(C:1)", b"Caused by: x"], record_us=RECORD_US) is None
    few = [b"23:59:58 a"] + [b"nothing"] * 3
    assert suggest_pattern(few, record_us=RECORD_US) is None
