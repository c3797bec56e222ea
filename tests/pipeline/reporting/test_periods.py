"""Days, weeks and months, over both changes of the clocks; when their reports are due."""

from datetime import UTC, date, datetime, timedelta

import pytest

from millstream.pipeline.reporting.periods import Kind, days_of, due_periods, period_of

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("kind", "day", "name", "first", "last"),
    [
        (Kind.DAILY, date(2026, 9, 21), "daily-2026-09-21", "2026-09-21", "2026-09-21"),
        (Kind.WEEKLY, date(2026, 9, 27), "weekly-2026-W39", "2026-09-21", "2026-09-27"),
        # A week belongs to the year that has more of its days.
        (Kind.WEEKLY, date(2027, 1, 3), "weekly-2026-W53", "2026-12-28", "2027-01-03"),
        (Kind.MONTHLY, date(2028, 2, 29), "monthly-2028-02", "2028-02-01", "2028-02-29"),
        (Kind.MONTHLY, date(2026, 12, 31), "monthly-2026-12", "2026-12-01", "2026-12-31"),
    ],
)
def test_a_day_is_in_one_period(kind: Kind, day: date, name: str, first: str, last: str) -> None:
    period = period_of(kind, day, "UTC")
    assert period.name == name
    days = period.days
    assert (days[0].isoformat(), days[-1].isoformat()) == (first, last)


def test_a_day_of_23_hours() -> None:
    day = period_of(Kind.DAILY, date(2026, 3, 29), BERLIN)
    assert day.ends_at - day.begins_at == timedelta(hours=23)
    labels = [part.label for part in day.parts()]
    assert labels[:4] == ["00:00", "01:00", "03:00", "04:00"]
    assert len(labels) == 23


def test_a_day_of_25_hours_tells_its_two_equal_hours_apart() -> None:
    day = period_of(Kind.DAILY, date(2026, 10, 25), BERLIN)
    assert day.ends_at - day.begins_at == timedelta(hours=25)
    labels = [part.label for part in day.parts()]
    assert labels[:5] == ["00:00", "01:00", "02:00 CEST", "02:00 CET", "03:00"]
    assert len(labels) == 25


def test_a_day_without_midnight_begins_at_one() -> None:
    day = period_of(Kind.DAILY, date(2026, 4, 24), "Africa/Cairo")
    assert [part.label for part in day.parts()][:2] == ["01:00", "02:00"]
    assert day.ends_at - day.begins_at == timedelta(hours=23)


def test_days_of_a_week_are_its_parts() -> None:
    week = period_of(Kind.WEEKLY, date(2026, 3, 29), BERLIN)
    assert week.parts()[0].label == "Mon 2026-03-23"
    assert week.ends_at - week.begins_at == timedelta(days=7, hours=-1)


def test_earlier_periods_latest_first() -> None:
    month = period_of(Kind.MONTHLY, date(2026, 3, 31), "UTC")
    assert [each.name[-7:] for each in month.before(3)] == ["2026-02", "2026-01", "2025-12"]


def days_from(first: date, count: int) -> list[date]:
    return [first + timedelta(days=number) for number in range(count)]


DAYS = days_from(date(2026, 9, 18), 60)


def due(
    kind: Kind, until: datetime, *done: str, zone: str = "UTC", days: list[date] = DAYS
) -> list[str]:
    found = due_periods(
        kind,
        zone=zone,
        days=days,
        complete_until=until,
        delay=timedelta(minutes=12),
        done=done,
    )
    return [each.name.partition("-")[2] for each in found]


def test_days_are_due_when_nothing_of_them_can_come_any_more() -> None:
    assert due(Kind.DAILY, datetime(2026, 9, 20, 0, 11, 59, tzinfo=UTC)) == ["2026-09-18"]
    assert due(Kind.DAILY, datetime(2026, 9, 20, 0, 12, tzinfo=UTC)) == ["2026-09-18", "2026-09-19"]
    assert due(Kind.DAILY, datetime(2026, 9, 18, 12, tzinfo=UTC)) == []


def test_what_was_missed_is_due_and_what_was_done_is_not() -> None:
    until = datetime(2026, 9, 22, 1, tzinfo=UTC)
    assert due(Kind.DAILY, until, "daily-2026-09-19") == ["2026-09-18", "2026-09-20", "2026-09-21"]


def test_weeks_and_months_are_due_after_their_last_day() -> None:
    assert due(Kind.WEEKLY, datetime(2026, 9, 21, 0, 12, tzinfo=UTC)) == ["2026-W38"]
    assert due(Kind.MONTHLY, datetime(2026, 9, 30, 23, tzinfo=UTC)) == []
    assert due(Kind.MONTHLY, datetime(2026, 11, 1, 1, tzinfo=UTC)) == ["2026-09", "2026-10"]


def test_a_day_of_the_declared_zone_closes_at_its_own_midnight() -> None:
    # Tokyo is nine hours ahead.
    until = datetime(2026, 9, 18, 15, 12, tzinfo=UTC)
    assert due(Kind.DAILY, until, zone="Asia/Tokyo") == ["2026-09-18"]
    assert due(Kind.DAILY, until - timedelta(seconds=1), zone="Asia/Tokyo") == []


def test_one_old_record_makes_nothing_due_but_its_own_periods() -> None:
    until = datetime(2026, 9, 20, 1, tzinfo=UTC)
    days = [date(1970, 1, 1), *DAYS]
    assert due(Kind.DAILY, until, days=days) == ["1970-01-01", "2026-09-18", "2026-09-19"]
    assert due(Kind.WEEKLY, until, days=days) == ["1970-W01"]
    assert due(Kind.MONTHLY, until, days=days) == ["1970-01"]


def test_days_near_the_ends_of_the_calendar_are_left_out() -> None:
    names = ["-1199-02-15", "0001-01-01", "0002-12-31", "0003-01-01", "9997-12-31", "9998-01-01"]
    days = days_of([*names, "9999-12-31", "10000-01-01", "None", "2026-09-21"])
    assert days == [date(3, 1, 1), date(2026, 9, 21), date(9997, 12, 31)]
    until = datetime(2026, 9, 22, 12, tzinfo=UTC)
    for zone in ("America/New_York", "Asia/Tokyo"):
        assert due(Kind.DAILY, until, days=days, zone=zone) == ["0003-01-01", "2026-09-21"]
        assert due(Kind.WEEKLY, until, days=days, zone=zone) == ["0003-W01"]
        assert due(Kind.MONTHLY, until, days=days, zone=zone) == ["0003-01"]
