"""Reports: from a table made for them, over both changes of the clocks."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.pipeline.outputs import table_path
from millstream.pipeline.reporting import reports
from millstream.pipeline.reporting.periods import Kind, Period, period_of
from millstream.pipeline.reporting.reports import (
    NoTable,
    complete_until,
    due_reports,
    event_days,
    make_report,
    make_reports_since,
    period_named,
    report_on,
    reported,
)
from millstream.pipeline.reporting.sections import make_sections
from millstream.pipeline.reporting.text import cell, heading
from millstream.pipeline.spec import Spec
from millstream.warehouse.files import Batch
from millstream.warehouse.tables import commit_files, find_table, open_table
from tests.pipeline.conftest import MakeSpec
from tests.warehouse.table_cases import write_table_rows

SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us", tz="UTC")),
        *((n, pa.string()) for n in ("format", "host", "service", "program", "visitor", "path")),
        ("status", pa.int32()),
        ("size_bytes", pa.int64()),
        ("duration_ms", pa.float64()),
        *((n, pa.string()) for n in ("level", "problem", "date")),
        ("fields", pa.map_(pa.string(), pa.string())),
    ]
)
BERLIN = ZoneInfo("Europe/Berlin")
# 23 hours long: the clocks go from 2 to 3.
SHORT_DAY = date(2026, 3, 29)
# 25 hours long: the clocks go from 3 to 2.
LONG_DAY = date(2026, 10, 25)
Rows = list[dict[str, Any]]


def berlin(day: date, hour: int = 0) -> datetime:
    """So many hours after midnight in Berlin; by a stop watch, not by the clock on the wall."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=BERLIN).astimezone(UTC)
    return midnight + timedelta(hours=hour)


def event(at: datetime, **columns: object) -> dict[str, Any]:
    day = at.astimezone(BERLIN).date().isoformat()
    return {"event_time": at, "date": day, "format": "json", "host": "app-1", **columns}


def view(at: datetime, visitor: str, path: str, **columns: object) -> dict[str, Any]:
    page = {"format": "combined", "host": "web-1", "visitor": visitor, "path": path}
    return event(at, **{**page, "status": 200, "size_bytes": 100, **columns})


def call(at: datetime, service: str, status: int, duration_ms: float) -> dict[str, Any]:
    return event(at, service=service, status=status, duration_ms=duration_ms)


MakeTable = Callable[[Rows], Spec]


@pytest.fixture(params=["delta", "parquet"])
def make_table(request: pytest.FixtureRequest, make_spec: MakeSpec) -> MakeTable:
    """A pipeline whose table of events has the given rows."""

    def make(rows: Rows) -> Spec:
        spec = make_spec(
            f"name = 'shop'\ntimezone = 'Europe/Berlin'\n[warehouse]\nformat = '{request.param}'"
        )
        path = table_path(spec, "events")
        table = open_table(path, SCHEMA, spec.warehouse)
        files = write_table_rows(path, rows, SCHEMA, spec.warehouse)
        commit_files(table, Batch("q", 0), files)
        return spec

    return make


@pytest.fixture
def spec(make_table: MakeTable) -> Spec:
    start = berlin(SHORT_DAY)
    return make_table(
        [
            view(start - timedelta(seconds=1), "a", "/"),
            view(start, "a", "/product/1"),
            view(start + timedelta(minutes=1), "a", "/cart"),
            view(start + timedelta(minutes=2), "b", "/product/1", status=502),
            # The last second of a day of 23 hours.
            view(start + timedelta(hours=23, seconds=-1), "c", "/about"),
            view(start + timedelta(hours=23), "c", "/about"),
            *(call(start + timedelta(hours=2), "cart", 200, float(n)) for n in range(1, 101)),
            call(start + timedelta(hours=2), "cart", 503, 1.0),
            event(start, host="db-1", program="cron", level="error"),
            event(start, host="db-1", fields=[("cpu", "0.25"), ("memory", "all of it")]),
            event(start, host="db-1", fields=[("cpu", "0.75")]),
            view(start, "x", "/late", problem="late"),
        ]
    )


def section(spec: Spec, name: str, period: Period | None = None) -> Rows:
    table = find_table(table_path(spec, "events"))
    assert table is not None
    chosen = period or period_of(Kind.DAILY, SHORT_DAY, spec.timezone)
    [found] = [each for each in make_sections(spec, chosen, table.dataset()) if each.name == name]
    rows: Rows = found.table.to_pylist()
    return rows


def test_a_short_day_has_its_own_rows_and_no_others(spec: Spec) -> None:
    day, day_before = section(spec, "overview")
    assert day == {
        "day": "2026-03-29",
        "lines": 108,
        "page_views": 4,
        "visitors": 3,
        "bytes_sent": 400,
        "errors": 3,
        "errors_percent": 2.78,
    }
    assert (day_before["day"], day_before["page_views"]) == ("2026-03-28", 1)


def test_a_day_of_23_hours_has_each_hour_in_a_row(spec: Spec) -> None:
    rows = section(spec, "traffic")
    assert len(rows) == 23
    by_hour = {row["hour"]: row for row in rows}
    assert by_hour["00:00"]["page_views"] == 3
    assert by_hour["23:00"]["page_views"] == 1
    # Two hours after midnight the clock shows three.
    assert "02:00" not in by_hour
    assert (by_hour["03:00"]["lines"], by_hour["03:00"]["service_p95_ms"]) == (101, 95.0)


def test_a_day_of_25_hours_has_each_hour_in_a_row(make_table: MakeTable) -> None:
    spec = make_table([view(berlin(LONG_DAY, hour), "a", f"/{hour}") for hour in range(-1, 26)])
    period = period_of(Kind.DAILY, LONG_DAY, spec.timezone)
    rows = section(spec, "traffic", period)
    assert [row["page_views"] for row in rows] == [1] * 25
    assert [row["hour"] for row in rows][2:4] == ["02:00 CEST", "02:00 CET"]
    assert section(spec, "overview", period)[0]["page_views"] == 25
    text = (make_report(spec, period) / "report.md").read_text()
    assert "with 25 hours: the clocks changed" in text


def test_services_have_percentiles_of_all_their_requests(spec: Spec) -> None:
    assert section(spec, "latency") == [
        {
            "service": "cart",
            "requests": 101,
            "p50_ms": 50.0,
            "p95_ms": 95.0,
            "p99_ms": 99.0,
            "max_ms": 100.0,
        }
    ]


def test_percentiles_are_good_to_four_digits(make_table: MakeTable) -> None:
    at = berlin(SHORT_DAY)
    calls = [("x", 0.0), ("x", 0.0123456), ("x", 12345.678), ("y", 12345.678)]
    spec = make_table([call(at, service, 200, value) for service, value in calls])
    first, second = section(spec, "latency")
    assert (first["p50_ms"], first["max_ms"]) == (0.01235, 12345.678)
    assert second["p50_ms"] == 12350.0


def test_errors_say_who_had_them(spec: Spec) -> None:
    found = {(row["where"], row["name"]): row["errors"] for row in section(spec, "errors")}
    assert found == {("service", "cart"): 1, ("page", "/product/1"): 1, ("log", "cron"): 1}


def test_hosts_tell_their_load(spec: Spec) -> None:
    [told] = section(spec, "gauges")
    assert (told["host"], told["cpu_mean"], told["cpu_max"]) == ("db-1", 0.5, 0.75)
    # What is no number is not told.
    assert told["memory_max"] is None
    rows = {row["host"]: row for row in section(spec, "capacity")}
    app = rows["app-1"]
    assert (app["lines"], app["minutes_heard"], app["most_in_a_minute"]) == (101, 1, 101)
    assert app["busiest_minute"] == "2026-03-29 03:00 CEST"


def test_without_gauges_hosts_tell_nothing(spec: Spec) -> None:
    assert section(replace(spec, gauges=()), "gauges") == []


def test_pages_funnel_and_retention(spec: Spec) -> None:
    assert section(spec, "pages")[0] == {
        "path": "/product/1",
        "views": 2,
        "visitors": 2,
        "views_percent": 50.0,
    }
    assert [row["visits"] for row in section(spec, "funnel")] == [2, 1, 0, 0]
    assert section(spec, "retention")[0] == {
        "day": "2026-03-28",
        "visitors": 1,
        "came_back": 1,
        "came_back_percent": 100.0,
    }


def test_a_week_is_the_sum_of_its_days(spec: Spec) -> None:
    week = period_of(Kind.WEEKLY, SHORT_DAY, spec.timezone)
    assert section(spec, "overview", week)[0]["page_views"] == 5
    assert [row["page_views"] for row in section(spec, "traffic", week)] == [0] * 5 + [1, 4]
    # Visitor a came on both days.
    assert section(spec, "overview", week)[0]["visitors"] == 3
    next_week = period_of(Kind.WEEKLY, SHORT_DAY + timedelta(days=1), spec.timezone)
    assert section(spec, "retention", next_week)[0] == {
        "week": "2026-W13",
        "visitors": 3,
        "came_back": 1,
        "came_back_percent": 33.33,
    }


def test_a_month_has_its_days(spec: Spec) -> None:
    month = period_of(Kind.MONTHLY, SHORT_DAY, spec.timezone)
    assert len(section(spec, "traffic", month)) == 31
    assert section(spec, "overview", month)[0]["page_views"] == 6
    assert section(spec, "funnel", month)[0]["visits"] == 2


def test_a_second_run_replaces_the_first(spec: Spec) -> None:
    period = period_of(Kind.DAILY, SHORT_DAY, spec.timezone)
    first = make_report(spec, period)
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    (first / "left-over").write_text("x")
    second = make_report(spec, period)
    assert {path.name: path.read_bytes() for path in second.iterdir()} == before
    assert {"report.md", "report.html", "latency.csv", "latency.parquet"} <= set(before)
    assert pq.read_table(second / "overview.parquet")["page_views"].to_pylist() == [4, 1]
    assert reported(spec.home) == {"daily-2026-03-29"}


def test_reports_that_were_missed_are_made_up_for(spec: Spec) -> None:
    until = datetime(2026, 4, 1, 6, tzinfo=UTC)
    assert [period.name for period in due_reports(spec, until)] == [
        *(f"daily-2026-03-{day}" for day in (28, 29, 30)),
        "weekly-2026-W13",
        "monthly-2026-03",
    ]
    query = progress(5, 5, until.isoformat())
    for count in range(1, 6):
        assert report_on(spec, query)
        assert len(reported(spec.home)) == count
    assert not report_on(spec, query)
    assert due_reports(spec, until) == []


def test_a_record_without_a_time_is_one_day_more(make_table: MakeTable) -> None:
    day = {"format": "json", "host": "app-1", "problem": "ahead", "event_time": None}
    spec = make_table(
        [
            view(berlin(SHORT_DAY), "a", "/"),
            *({**day, "date": name} for name in ("-1199-02-15", "0001-01-01", "1970-01-01")),
        ]
    )
    assert event_days(table_path(spec, "events")) == [date(1970, 1, 1), SHORT_DAY]
    query = progress(5, 5, "2026-04-01T06:00:00.000Z")
    while report_on(spec, query):
        pass
    assert reported(spec.home) == {
        *("daily-1970-01-01", "weekly-1970-W01", "monthly-1970-01"),
        *("daily-2026-03-29", "weekly-2026-W13", "monthly-2026-03"),
    }


def test_only_reports_that_are_wanted_are_made(make_spec: MakeSpec) -> None:
    spec = make_spec("[reports]\nweekly = false")
    assert reports.scheduled(spec) == [Kind.DAILY, Kind.MONTHLY]
    assert reports.scheduled(make_spec("[warehouse]\nformat = 'none'")) == []


def test_reports_are_made_again_from_a_day_on(spec: Spec) -> None:
    for period in due_reports(spec, datetime(2026, 4, 1, 6, tzinfo=UTC)):
        make_report(spec, period)
    again = make_reports_since(spec, date(2026, 3, 30))
    assert [path.name for path in again] == ["daily-2026-03-30", "monthly-2026-03"]


def test_names_that_are_not_ours_are_no_periods() -> None:
    assert period_named("weekly-2026-W13", "UTC") == period_of(Kind.WEEKLY, SHORT_DAY, "UTC")
    for name in ("daily-today", "yearly-2026", "monthly-2026-13", "notes-x"):
        assert period_named(name, "UTC") is None


def test_an_empty_day_has_a_report_too(spec: Spec) -> None:
    path = make_report(spec, period_of(Kind.DAILY, date(2026, 5, 1), spec.timezone))
    assert "| 2026-05-01 | 0 | 0 | 0 | 0 bytes | 0 |  |" in (path / "report.md").read_text()


def test_what_has_no_figures_is_only_named_at_the_end(make_table: MakeTable) -> None:
    """A log that is not of a web site has no pages, visits or services."""
    spec = make_table([event(berlin(SHORT_DAY), program="cron", level="info")])
    path = make_report(spec, period_of(Kind.DAILY, SHORT_DAY, spec.timezone))
    text = (path / "report.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["## Overview", "## Traffic by hour", "## Load of hosts"]
    assert "| hour | lines |\n" in text
    assert text.endswith(
        "\nNothing was found for: pages, funnel, retention, latency, errors, messages, gauges.\n"
    )
    page = (path / "report.html").read_text()
    assert page.count("<figure") == 1
    assert "<h2>Pages" not in page
    assert "Nothing was found for: pages," in page
    assert (path / "pages.csv").exists()


def test_without_a_table_there_is_no_report(make_spec: MakeSpec) -> None:
    with pytest.raises(NoTable):
        make_report(make_spec(), period_of(Kind.DAILY, SHORT_DAY, "UTC"))


def test_days_are_those_of_the_table(spec: Spec, tmp_path: Path) -> None:
    assert event_days(table_path(spec, "events")) == [date(2026, 3, day) for day in (28, 29, 30)]
    assert event_days(tmp_path / "nothing") == []


def progress(end: int, latest: int, at: str) -> Any:
    """A query as far as reports look at it."""
    source = SimpleNamespace(endOffset=f'{{"logs":{{"0":{end}}}}}', latestOffset=None)
    source.latestOffset = f'{{"logs":{{"0":{latest}}}}}'
    return SimpleNamespace(lastProgress=SimpleNamespace(sources=[source], timestamp=at))


def test_tables_that_are_behind_make_nothing_due(spec: Spec) -> None:
    at = "2026-04-01T06:00:00.000Z"
    assert complete_until(progress(5, 5, at)) == datetime(2026, 4, 1, 6, tzinfo=UTC)
    assert complete_until(progress(4, 5, at)) is None
    assert complete_until(SimpleNamespace(lastProgress=None)) is None  # type: ignore[arg-type]
    unknown = progress(4, 5, at)
    unknown.lastProgress.sources[0].latestOffset = None
    assert complete_until(unknown) is None
    assert not report_on(spec, progress(4, 5, at))
    assert reported(spec.home) == set()
    assert report_on(spec, progress(5, 5, at))
    assert reported(spec.home) == {"daily-2026-03-28"}


def test_a_report_that_fails_stops_nothing(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise pa.ArrowInvalid("not a Parquet file")

    monkeypatch.setattr(reports, "make_sections", fail)
    assert not report_on(spec, progress(5, 5, "2026-04-01T06:00:00.000Z"))
    assert "could not make a report: not a Parquet file" in caplog.text


def test_the_page_is_one_file_with_its_charts_and_no_text_that_is_markup(
    make_table: MakeTable,
) -> None:
    spec = make_table([view(berlin(SHORT_DAY), "a", "/<script>alert(1)</script>", status=500)])
    period = period_of(Kind.DAILY, SHORT_DAY, spec.timezone)
    page = (make_report(spec, period) / "report.html").read_text()
    assert "<script" not in page
    assert "/&lt;script&gt;" in page
    assert "http" not in page
    # Three charts over the hours, each with a column and its text for each of 23.
    assert page.count("<figure") == 3
    assert page.count("<rect x=") == 3 * 23
    assert "<title>00:00: 1</title>" in page


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("lines", 1234567, "1,234,567"),
        ("bytes_sent", 999, "999 bytes"),
        ("bytes_sent", 1_234_000_000, "1.23 GB"),
        ("p95_ms", 12.345, "12.3"),
        ("p95_ms", 12345.6, "12,346"),
        ("errors_percent", 0.0, "0"),
        ("path", None, ""),
    ],
)
def test_numbers_are_readable(column: str, value: object, text: str) -> None:
    assert cell(column, value) == text


def test_headings_have_units() -> None:
    assert heading("service_p95_ms") == "service p95 (ms)"
    assert heading("came_back_percent") == "came back (%)"
