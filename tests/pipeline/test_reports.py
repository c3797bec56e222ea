"""The report of a day: from a table made for it, over a change to summer time."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from millstream.pipeline.outputs import table_path
from millstream.pipeline.reports import (
    Period,
    daily_sections,
    due_days,
    first_day,
    make_due_reports,
    make_report,
    reported_days,
)
from millstream.pipeline.spec import Spec
from millstream.pipeline.table_files import Batch
from millstream.pipeline.warehouse import commit_files, open_table
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.table_cases import write_table_rows

SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us", tz="UTC")),
        *((n, pa.string()) for n in ("format", "host", "service", "visitor", "path")),
        ("status", pa.int32()),
        ("size_bytes", pa.int64()),
        ("duration_ms", pa.float64()),
        *((n, pa.string()) for n in ("level", "problem", "date")),
    ]
)
BERLIN = ZoneInfo("Europe/Berlin")
# 23 hours long: the clocks go from 2 to 3.
SHORT_DAY = date(2026, 3, 29)


def view(at: datetime, visitor: str, path: str) -> dict[str, object]:
    local = at.astimezone(BERLIN).date().isoformat()
    return {
        "event_time": at,
        "format": "combined",
        "host": "web-1",
        "visitor": visitor,
        "path": path,
        "status": 200,
        "size_bytes": 100,
        "date": local,
    }


def call(at: datetime, service: str, status: int, duration_ms: float) -> dict[str, object]:
    return {
        "event_time": at,
        "format": "json",
        "host": "app-1",
        "service": service,
        "status": status,
        "duration_ms": duration_ms,
        "date": at.astimezone(BERLIN).date().isoformat(),
    }


@pytest.fixture
def spec(make_spec: MakeSpec) -> Spec:
    found = make_spec("name = 'shop'\ntimezone = 'Europe/Berlin'")
    start = datetime(2026, 3, 29, 0, 0, tzinfo=BERLIN).astimezone(UTC)
    rows = [
        view(start - timedelta(seconds=1), "a", "/"),
        view(start, "a", "/product/1"),
        view(start + timedelta(minutes=1), "a", "/cart"),
        view(start + timedelta(minutes=2), "b", "/product/1"),
        # The last second of a day of 23 hours.
        view(start + timedelta(hours=23, seconds=-1), "c", "/about"),
        view(start + timedelta(hours=23), "c", "/about"),
        *(call(start + timedelta(hours=2), "cart", 200, float(n)) for n in range(1, 101)),
        call(start + timedelta(hours=2), "cart", 503, 1.0),
        {**view(start, "x", "/late"), "problem": "late"},
    ]
    path = table_path(found, "events")
    files = write_table_rows(path, rows, SCHEMA, "delta")
    commit_files(open_table(path, SCHEMA, "delta"), Batch("q", 0), files)
    return found


def section(spec: Spec, name: str) -> list[dict[str, object]]:
    period = Period(SHORT_DAY, spec.timezone)
    sections = daily_sections(spec, period, table_path(spec, "events"))
    [found] = [each for each in sections if each.name == name]
    rows: list[dict[str, object]] = found.table.to_pylist()
    return rows


def test_a_short_day_has_its_own_rows_and_no_others(spec: Spec) -> None:
    overview = {row["what"]: row["count"] for row in section(spec, "overview")}
    assert overview == {
        "lines": 105,
        "page views": 4,
        "visitors": 3,
        "bytes sent": 400,
        "errors": 1,
    }


def test_hours_are_those_on_the_wall(spec: Spec) -> None:
    views = {row["hour"]: row["views"] for row in section(spec, "hours")}
    assert views["00:00"] == 3
    assert views["23:00"] == 1
    lines = {row["hour"]: row["lines"] for row in section(spec, "hours")}
    # Two hours after midnight the clock shows three.
    assert (lines["02:00"], lines["03:00"]) == (0, 101)


def test_services_have_exact_percentiles(spec: Spec) -> None:
    [row] = section(spec, "services")
    assert row == {
        "service": "cart",
        "requests": 101,
        "errors": 1,
        "p50_ms": 50.0,
        "p95_ms": 95.0,
        "p99_ms": 99.0,
    }


def test_pages_funnel_and_retention(spec: Spec) -> None:
    assert section(spec, "pages")[0] == {"path": "/product/1", "views": 2, "visitors": 2}
    assert [row["visits"] for row in section(spec, "funnel")] == [2, 1, 0, 0]
    assert section(spec, "retention")[0] == {
        "day": "2026-03-28",
        "visitors": 1,
        "came_back": 1,
    }


def test_a_second_run_replaces_the_first(spec: Spec) -> None:
    events = table_path(spec, "events")
    first = make_report(spec, SHORT_DAY, events_path=events)
    before = {path.name: path.read_text() for path in first.iterdir()}
    (first / "left-over").write_text("x")
    second = make_report(spec, SHORT_DAY, events_path=events)
    assert {path.name: path.read_text() for path in second.iterdir()} == before
    assert {"report.md", "report.html", "services.csv"} <= set(before)
    assert reported_days(spec.home) == {SHORT_DAY}


def test_reports_that_were_missed_are_made_up_for(spec: Spec) -> None:
    now = datetime(2026, 3, 31, 6, tzinfo=UTC)
    made = make_due_reports(spec, now)
    assert [path.name[-2:] for path in made] == ["28", "29", "30"]
    assert make_due_reports(spec, now) == []


def test_an_empty_day_has_a_report_too(spec: Spec) -> None:
    path = make_report(spec, date(2026, 5, 1), events_path=table_path(spec, "events"))
    assert "| page views | 0 |" in (path / "report.md").read_text()


def test_the_first_day_is_the_oldest_of_the_table(spec: Spec, tmp_path: Path) -> None:
    assert first_day(table_path(spec, "events")) == date(2026, 3, 28)
    assert first_day(tmp_path / "nothing") is None


def test_days_are_due_when_nothing_of_them_can_come_any_more() -> None:
    delay = timedelta(minutes=12)
    first = date(2026, 9, 18)

    def due(now: datetime, *done: date) -> list[int]:
        return [day.day for day in due_days(done=set(done), first=first, now=now, delay=delay)]

    assert due(datetime(2026, 9, 21, 0, 11)) == [18, 19]
    assert due(datetime(2026, 9, 21, 0, 12)) == [18, 19, 20]
    assert due(datetime(2026, 9, 21, 0, 12), date(2026, 9, 19)) == [18, 20]
    assert due(datetime(2026, 9, 18, 12, 0)) == []
    assert due_days(done=set(), first=None, now=datetime(2026, 9, 21), delay=delay) == []
