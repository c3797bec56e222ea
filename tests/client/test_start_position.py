"""The `-o` option of `millstream consume`."""

from datetime import UTC, datetime

import pytest

from millstream.client.start_position import (
    FromBeginning,
    FromEnd,
    FromOffset,
    FromTime,
    Range,
    Start,
    offset_of,
    parse_range,
    parse_start,
)

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", FromBeginning()),
        ("end", FromEnd(back=0)),
        ("0", FromOffset(0)),
        ("42", FromOffset(42)),
        ("-3", FromEnd(back=3)),
        ("@now", FromTime(NOON_MS)),
        ("@-1h", FromTime(NOON_MS - 3_600_000)),
        ("@-30s", FromTime(NOON_MS - 30_000)),
        ("@-2d", FromTime(NOON_MS - 2 * 86_400_000)),
        ("@2026-01-31T12:00:00Z", FromTime(NOON_MS)),
        ("@2026-01-31T13:00:00+01:00", FromTime(NOON_MS)),
        ("@2026-01-31T12:00:00.250Z", FromTime(NOON_MS + 250)),
        ("@1769860800000", FromTime(NOON_MS)),
        ("@-99999999999d", FromTime(0)),
        ("@0001-01-01", FromTime(0)),
        ("@99999999999999999999999", FromTime(2**63 - 1)),
    ],
)
def test_every_form_is_understood(text: str, start: object) -> None:
    assert parse_start(text, now=NOW) == start


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_start("@2026-01-31T12:00:00", now=NOW) == FromTime(NOON_MS)
    assert parse_start("@2026-01-31", now=NOW) == FromTime(NOON_MS - 12 * 3_600_000)


@pytest.mark.parametrize(
    "text", ["", "soon", "--1", "1.5", "@", "@yesterday", "@-1w", "@2026-13-01"]
)
def test_what_is_no_start_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (a time|beginning)"):
        parse_start(text, now=NOW)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("7", Range(FromOffset(7), None)),
        ("7:9", Range(FromOffset(7), FromOffset(9))),
        (":9", Range(FromBeginning(), FromOffset(9))),
        ("-5:end", Range(FromEnd(5), FromEnd(0))),
        ("@2026-01-31T12:00:00Z", Range(FromTime(NOON_MS), None)),
        ("@-1h:@now", Range(FromTime(NOON_MS - 3_600_000), FromTime(NOON_MS))),
        (
            "@2026-01-31T12:00:00Z:@2026-01-31T12:00:01Z",
            Range(FromTime(NOON_MS), FromTime(NOON_MS + 1000)),
        ),
        ("@2026-01-31T12:00:end", Range(FromTime(NOON_MS), FromEnd(0))),
    ],
)
def test_a_range_is_two_starts_with_a_colon_between(text: str, span: Range) -> None:
    assert parse_range(text, now=NOW) == span


@pytest.mark.parametrize("text", ["1:soon", "@yesterday:@now", "a:b:c"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_range(text, now=NOW)


@pytest.mark.parametrize(
    ("start", "at", "offset"),
    [
        (FromBeginning(), -1, 5),
        (FromEnd(0), -1, 10),
        (FromEnd(3), -1, 7),
        (FromEnd(100), -1, 5),
        (FromOffset(2), -1, 5),
        (FromOffset(7), -1, 7),
        (FromOffset(99), -1, 10),
        (FromTime(1), 6, 6),
        (FromTime(1), -1, 10),
    ],
)
def test_a_start_is_an_offset_inside_the_partition(start: Start, at: int, offset: int) -> None:
    assert offset_of(start, first=5, end=10, at=at) == offset
