"""What patterns read from lines; `test_scanning` holds the compiled reading against this one."""

from datetime import UTC, datetime

import pytest

from millstream.lines._patterns_pure import read_line
from millstream.lines.line_patterns import compile_pattern

RECORD = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
RECORD_US = int(RECORD.timestamp()) * 1_000_000


def fields(pattern: str, line: str) -> dict[str, str | None] | None:
    found = read_line([compile_pattern(pattern)], line.encode(), RECORD_US)
    return None if found is None else dict(found[0])


def seen(time_format: str, text: str, record_us: int | None = RECORD_US) -> str | None:
    """The time in ISO, with a Z if the line has a zone."""
    steps = compile_pattern(f"<t:{time_format}>")
    found = read_line([steps], text.encode(), record_us)
    if found is None:
        return None
    at = datetime.fromtimestamp(found[1].micros / 1_000_000, UTC).replace(tzinfo=None)
    return at.isoformat() + ("" if found[1].is_local else "Z")


def test_blanks_of_a_pattern_are_any_number_of_blanks() -> None:
    found = fields("<time:%H:%M> <pid> <level>: <message>", "12:00   17\tW  :  all  of it ")
    assert found == {"time": "12:00", "pid": "17", "level": "W", "message": "all  of it "}


def test_a_word_has_no_spaces_and_a_wide_field_may() -> None:
    assert fields("<t> [<thread>] <message>", "1789999198 [a b] c") is None
    assert fields("<t> [<thread...>] <message>", "1789999198 [a b] [c] d") == {
        "t": "1789999198",
        "thread": "a b",
        "message": "[c] d",
    }


def test_the_last_literal_is_the_one_at_the_end() -> None:
    assert fields("<t> (<message...>)", "1789999198 (a (b) c)") == {
        "t": "1789999198",
        "message": "a (b) c",
    }
    assert fields("<t> (<message...>)", "1789999198 (a (b) c") is None
    assert fields("<t> end", "1789999198 end.") is None


def test_fields_may_be_empty_and_dropped_ones_are_not_returned() -> None:
    assert fields("<t>|<_>|<a>|<message>", "1789999198|x||") == {
        "t": "1789999198",
        "a": "",
        "message": "",
    }


def test_a_time_without_a_format_is_iso_with_its_blank_or_a_number() -> None:
    assert fields("<time> <level>", "2015-10-18 18:01:47,978 INFO") == {
        "time": "2015-10-18 18:01:47,978",
        "level": "INFO",
    }
    assert fields("<_> <time> <level>", "x 1077804742 1")
    assert fields("<time> <level>", "yesterday INFO") is None


def test_the_first_pattern_that_a_line_fits_decides() -> None:
    patterns = [
        compile_pattern("<t> <program>[<pid>]: <message>"),
        compile_pattern("<t> <program>: <message>"),
    ]
    both = read_line(patterns, b"1789999198 kernel: a [1]: b", RECORD_US)
    assert both is not None
    assert dict(both[0]) == {"t": "1789999198", "program": "kernel", "message": "a [1]: b"}
    assert read_line(patterns, b"nothing", RECORD_US) is None


@pytest.mark.parametrize(
    ("time_format", "text", "expected"),
    [
        ("%Y-%m-%d %H:%M:%S.%f", "2026-09-21   13:59:58.25", "2026-09-21T13:59:58.250000"),
        ("%Y%m%d-%H:%M:%S:%f", "20171223-2:5:9:606", "2017-12-23T02:05:09.606000"),
        ("%d/%b/%Y:%H:%M:%S %z", "21/Sep/2026:15:59:58 +0200", "2026-09-21T13:59:58Z"),
        ("%a %b %e %H:%M:%S %Z %Y", "Mon Sep  1 13:59:58 UTC 2025", "2025-09-01T13:59:58Z"),
        ("%a %b %e %H:%M:%S %Z %Y", "Mon Sep  1 13:59:58 CEST 2025", "2025-09-01T13:59:58"),
        ("%m/%d/%y %I:%M %p", "9/21/26 12:05 AM", "2026-09-21T00:05:00"),
        ("%m/%d/%y %I:%M %p", "9/21/26 1:05 pm", "2026-09-21T13:05:00"),
        ("%m/%d/%y %I:%M %p", "9/21/26 13:05 pm", None),
        ("%H:%M:%S%z", "13:59:58-05:30", "2025-12-31T19:29:58Z"),
        ("%s", "1789999198.5", "2026-09-21T13:59:58.500000Z"),
        ("%s", "12", None),
        ("%Y-%m-%d", "2026-02-30", None),
        ("%Y-%m-%d", "0000-01-01", None),
        ("%H:%M", "24:00", None),
        ("%H%%%M", "13%59", "2025-12-31T13:59:00"),
        # The record is of five past midnight on New Year.
        ("%m-%d %H:%M", "12-31 23:59", "2025-12-31T23:59:00"),
        ("%m-%d %H:%M", "01-01 00:04", "2026-01-01T00:04:00"),
        ("%m-%d %H:%M", "00-00 00:04", None),
        ("%H:%M", "23:59", "2025-12-31T23:59:00"),
        ("%H:%M", "00:06", "2026-01-01T00:06:00"),
    ],
)
def test_times(time_format: str, text: str, expected: str | None) -> None:
    assert seen(time_format, text) == expected


def test_a_time_without_a_year_needs_the_time_of_its_record() -> None:
    assert seen("%m-%d %H:%M", "12-31 23:59", None) is None
    assert seen("%H:%M", "23:59", None) is None
    assert seen("%H:%M", "23:59", 1 << 62) is None
    assert seen("%Y-%m-%d %H:%M", "2026-09-21 13:59", None) == "2026-09-21T13:59:00"
