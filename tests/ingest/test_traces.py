"""Stack traces as one record each, whatever they look like and however they arrive."""

from millstream.ingest.lines import Line, LineSplitter
from millstream.ingest.traces import RECORD_BYTES_MAX, TraceJoiner

JAVA = b"""12:00:00 ERROR failed
java.io.IOException: x
\tat a.b.C.d(C.java:1)
\t... 12 more
Caused by: java.lang.Error
\tat a.b.C.e(C.java:2)
12:00:01 INFO went on
"""
PYTHON = b"""12:00:00 ERROR failed
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
ValueError: no

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
KeyError
12:00:01 INFO went on
"""


def lines_of(text: bytes) -> list[Line]:
    return LineSplitter(position=0, line_bytes_max=1000).split(text)


def joined(lines: list[Line]) -> list[bytes]:
    joiner = TraceJoiner()
    return [line.data for line in [*joiner.join(lines), *joiner.flush()]]


def test_a_trace_of_java_belongs_to_the_line_before_it() -> None:
    end = JAVA.index(b"12:00:01") - 1
    assert joined(lines_of(JAVA)) == [JAVA[:end], b"12:00:01 INFO went on"]


def test_a_trace_of_python_ends_with_what_was_raised() -> None:
    trace, behind = joined(lines_of(PYTHON))
    assert trace == PYTHON[: PYTHON.index(b"12:00:01") - 1].replace(b"\n\n", b"\n")
    assert behind == b"12:00:01 INFO went on"


def test_a_word_with_a_colon_is_raised_only_behind_a_traceback() -> None:
    assert joined(lines_of(b"a\nwarning: b\n")) == [b"a", b"warning: b"]


def test_lines_are_joined_across_reads_and_the_position_is_behind_the_last() -> None:
    joiner = TraceJoiner()
    whole = lines_of(b"a\n  b\nc\n")
    assert joiner.join(whole[:1]) == []
    assert joiner.is_holding
    assert joiner.join(whole[1:2]) == []
    assert joiner.join(whole[2:]) == [Line(b"a\n  b", 6)]
    assert joiner.flush() == [Line(b"c", 8)]
    assert (joiner.is_holding, joiner.flush()) == (False, [])


def test_a_trace_does_not_go_on_in_another_file_nor_beyond_what_is_parsed() -> None:
    assert joined([Line(b"a", 1), Line(b" b", 2, generation=1)]) == [b"a", b" b"]
    assert joined([Line(b"a", 1, is_complete=False), Line(b" b", 2)]) == [b"a", b" b"]
    long = b" " + b"x" * (RECORD_BYTES_MAX - 3)
    assert joined([Line(b"a", 1), Line(long, 2), Line(b" b", 3)]) == [b"a\n" + long, b" b"]
