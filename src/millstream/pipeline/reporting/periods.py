"""Days, weeks and months in a time zone: where they begin and end, and when they are due.

A day is as long as its zone makes it: 23 hours when summer time begins, 25 when it ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from zoneinfo import ZoneInfo


class Kind(Enum):
    DAILY = "daily"
    # From Monday to Sunday.
    WEEKLY = "weekly"
    MONTHLY = "monthly"


@dataclass(frozen=True, slots=True)
class Part:
    """An hour of a day, or a day of something longer; `begins_at` is in UTC."""

    label: str
    begins_at: datetime


@dataclass(frozen=True, slots=True)
class Period:
    kind: Kind
    first: date
    # The day after the last.
    end: date
    zone: str

    @property
    def name(self) -> str:
        """`daily-2026-09-21`, `weekly-2026-W39`, `monthly-2026-09`: in order by time."""
        if self.kind is Kind.WEEKLY:
            year, week, _ = self.first.isocalendar()
            return f"weekly-{year:04}-W{week:02}"
        text = self.first.isoformat()
        return f"{self.kind.value}-{text[:7] if self.kind is Kind.MONTHLY else text}"

    @property
    def title(self) -> str:
        if self.kind is Kind.DAILY:
            return f"{self.first:%A}, {self.first.day} {self.first:%B %Y}"
        if self.kind is Kind.MONTHLY:
            return f"{self.first:%B %Y}"
        last = self.end - timedelta(days=1)
        year, week, _ = self.first.isocalendar()
        return f"week {week} of {year}, {self.first.isoformat()} to {last.isoformat()}"

    @property
    def begins_at(self) -> datetime:
        return _midnight(self.first, self.zone)

    @property
    def ends_at(self) -> datetime:
        return _midnight(self.end, self.zone)

    @property
    def days(self) -> list[date]:
        count = (self.end - self.first).days
        return [self.first + timedelta(days=each) for each in range(count)]

    def before(self, count: int) -> list["Period"]:
        """As many periods of the same kind that came before, the latest first."""
        found: list[Period] = []
        last = self
        for _ in range(count):
            last = period_of(self.kind, last.first - timedelta(days=1), self.zone)
            found.append(last)
        return found

    def parts(self) -> list[Part]:
        if self.kind is not Kind.DAILY:
            return [Part(f"{day:%a} {day}", _midnight(day, self.zone)) for day in self.days]
        hours = round((self.ends_at - self.begins_at) / timedelta(hours=1))
        starts = [self.begins_at + timedelta(hours=hour) for hour in range(hours)]
        local = [start.astimezone(ZoneInfo(self.zone)) for start in starts]
        labels = [f"{each:%H:%M}" for each in local]
        return [
            Part(f"{label} {at:%Z}" if labels.count(label) > 1 else label, start)
            for label, at, start in zip(labels, local, starts, strict=True)
        ]


def period_of(kind: Kind, day: date, zone: str) -> Period:
    """The period that a day is in."""
    if kind is Kind.DAILY:
        return Period(kind, day, day + timedelta(days=1), zone)
    if kind is Kind.WEEKLY:
        monday = day - timedelta(days=day.weekday())
        return Period(kind, monday, monday + timedelta(days=7), zone)
    first = day.replace(day=1)
    # The 28th is in every month, and four days after it is another one.
    end = (first.replace(day=28) + timedelta(days=4)).replace(day=1)
    return Period(kind, first, end, zone)


def days_of(names: Iterable[str]) -> list[date]:
    """The days that a table names, in order.

    Not those of the first and the last two years of the calendar, where records with impossible
    times are filed: the periods before, or midnight in another zone, may be outside of it. Nor
    names that are no dates, which older tables have for such records.
    """
    found = []
    for name in names:
        try:
            day = date.fromisoformat(name)
        except ValueError:
            continue
        if date.min.year + 1 < day.year < date.max.year - 1:
            found.append(day)
    return sorted(found)


def due_periods(
    kind: Kind,
    *,
    zone: str,
    days: Iterable[date],
    complete_until: datetime,
    delay: timedelta,
    done: Iterable[str],
) -> list[Period]:
    """Periods of these days that are closed and not `done` (names), oldest first.

    All that was written up to `complete_until` is in the tables. A period is closed when an
    event of its last second, written then, would be late. Only periods with events: one old
    record does not make every day since then due.
    """
    known = set(done)
    periods = {period_of(kind, day, zone) for day in days}
    return [
        period
        for period in sorted(periods, key=lambda each: each.first)
        if period.ends_at + delay <= complete_until and period.name not in known
    ]


def _midnight(day: date, zone: str) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
