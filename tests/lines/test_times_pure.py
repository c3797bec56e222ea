"""Times and numbers as text; the compiled forms are held against these."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.lines import _times_pure as times

SECOND = 1_000_000
AT = 1789999198 * SECOND


@given(st.datetimes(min_value=datetime(1, 1, 1)))
def test_every_day_is_where_python_has_it(at: datetime) -> None:
    found = times.numeric_or_iso_time(f"{at.year:04}-{at:%m-%d %H:%M:%S.%f}Z")
    assert found is not None
    utc = at.replace(tzinfo=UTC)
    delta = utc - datetime(1970, 1, 1, tzinfo=UTC)
    assert found.micros == (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds
    assert times.month_of(found.micros) == (at.year, at.month)


@pytest.mark.parametrize(
    ("text", "micros", "is_local"),
    [
        ("2026-09-21T13:59:58Z", AT, False),
        ("2026-09-21 13:59:58", AT, True),
        ("2026/09/21 13:59:58,25", AT + 250_000, True),
        ("2026-09-21T15:59:58.123456789+02:00", AT + 123_456, False),
        ("2026-09-21T15:59:58+02", AT, False),
        ("2026-09-21T15:59:58 +0200", AT, False),
        ("2026-09-21 13:59:58 UTC", AT, False),
        ("2026-09-21T13:59Z", AT - 58 * SECOND, False),
        ("1789999198", AT, False),
        ("1789999198.25", AT + 250_000, False),
        ("1789999198250", AT + 250_000, False),
        ("1789999198250001", AT + 250_001, False),
        ("1789999198250001999", AT + 250_001, False),
        # As Java writes a number.
        ("1.78999919825E9", AT + 250_000, False),
        (" +1789999198 ", AT, False),
    ],
)
def test_a_time_is_a_number_of_our_days_or_iso(text: str, micros: int, is_local: bool) -> None:
    assert times.numeric_or_iso_time(text) == times.Time(micros, is_local)


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "e9", "0", "0e15", "99999999", "9000000000000000000", "-1789999198", "1e9999999"]
    + ["2026-02-29T00:00:00Z", "2026-09-21T24:00:00Z", "2026-09-21T13:59:60Z", "2026-09-21"]
    + ["0000-01-01T00:00:00Z", "2026-09-21T13:59:58+18:01", "2026-09-21T13:59:58 Europe/Berlin"]
    + ["2026-09-21T13:59:58.Z", "2026-09-21T13:59:5", "yesterday", "13:59:58"],
)
def test_what_is_no_time(text: str) -> None:
    assert times.numeric_or_iso_time(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("200", 200),
        (" +7 ", 7),
        ("-0", 0),
        ("000000000000000000000012", 12),
        ("2147483647", 2**31 - 1),
    ]
    + [("-2147483648", -(2**31)), ("2147483648", None), ("1.0", None), ("1e3", None), ("", None)]
    + [("٣", None), ("1_0", None), (None, None)],
)
def test_an_integer_is_digits_that_fit(text: str | None, number: int | None) -> None:
    assert times.integer_of(text, bits=32) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.5", 1.5), (" .5 ", 0.5), ("5.", 5.0), ("-1e-3", -0.001), ("1e400", None), ("NaN", None)]
    + [("Infinity", None), ("0x1p3", None), ("1.5d", None), ("1_0", None), ("", None), (".", None)],
)
def test_a_number_is_decimal_and_finite(text: str, number: float | None) -> None:
    assert times.double_of(text) == number
