"""Days and times of the declared zone, as Spark's own functions give them."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from millstream.pipeline.local_time import local_days, local_text, within_years


def times(*given: datetime | None) -> pa.Array:
    return pa.array(given, pa.timestamp("us", tz="UTC"))


def test_days_change_at_the_midnight_of_the_zone_and_none_stays_none() -> None:
    found = local_days(
        times(
            datetime(2026, 9, 20, 21, 59, 59, 999_999, tzinfo=UTC),
            datetime(2026, 9, 20, 22, 0, tzinfo=UTC),
            None,
        ),
        "Europe/Berlin",
    )
    assert found.to_pylist() == ["2026-09-20", "2026-09-21", None]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC"])
def test_text_follows_the_zone_over_its_changes(zone: str) -> None:
    from zoneinfo import ZoneInfo

    begin = datetime(2026, 3, 28, 22, 7, 30, 250_000, tzinfo=UTC)
    instants = [begin + timedelta(minutes=20 * number) for number in range(25_000)]
    expected = [
        each.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S.25") for each in instants
    ]
    assert local_text(times(*instants), zone).to_pylist() == expected


def test_text_has_no_zeros_behind() -> None:
    found = local_text(times(datetime(2026, 9, 21, 14, 0, 10, tzinfo=UTC), None), "UTC")
    assert found.to_pylist() == ["2026-09-21 14:00:10", None]


def test_times_that_no_clock_shows_are_no_error() -> None:
    far = pa.array([-(2**63) + 1, 2**63 - 1 - 10**12], pa.int64()).cast(
        pa.timestamp("us", tz="UTC")
    )
    assert all(local_days(far, "Europe/Berlin").to_pylist())
    far = pa.array([-(2**62), 2**62], pa.int64()).cast(far.type)
    for zone in ("Europe/Berlin", "America/New_York", "UTC"):
        assert local_days(far, zone).to_pylist() == ["0001-01-01", "9999-12-31"]
    # In the zone it is the last day of year 0.
    first = pa.array([-62_135_596_800_000_000], pa.int64()).cast(far.type)
    assert local_days(first, "America/New_York").to_pylist() == ["0001-01-01"]
    assert local_days(times(), "UTC").to_pylist() == []
    assert local_text(times(), "UTC").to_pylist() == []


def test_times_of_no_calendar_are_brought_into_it() -> None:
    known = datetime(2026, 9, 21, tzinfo=UTC)
    far = pa.array([-(2**62), 2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    found = within_years(pa.concat_arrays([far, times(known, None)]))
    first, last = (each.replace(tzinfo=UTC) for each in (datetime.min, datetime.max))
    assert found.to_pylist() == [first, last, known, None]
