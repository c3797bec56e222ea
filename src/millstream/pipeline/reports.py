"""The report of a day, from the table of events: traffic, visitors, funnel, services, hosts.

Made from the current version of the table with Arrow, no Spark. A report is a directory that
is replaced as a whole, so a second run changes nothing but its age. Days are those of the
declared time zone, which the table is divided by.
"""

import shutil
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from deltalake import DeltaTable

from millstream.pipeline.outputs import EVENTS, table_path
from millstream.pipeline.report_text import Section, as_html, as_markdown
from millstream.pipeline.spec import Spec

_COLUMNS: Final = (
    *("event_time", "format", "host", "service", "visitor", "path", "status", "size_bytes"),
    *("duration_ms", "level", "problem"),
)
_RETENTION_DAYS: Final = 7
_TOP: Final = 10
_SERVICES: Final = pa.schema(
    [
        ("service", pa.string()),
        *((name, pa.int64()) for name in ("requests", "errors")),
        *((name, pa.float64()) for name in ("p50_ms", "p95_ms", "p99_ms")),
    ]
)


@dataclass(frozen=True, slots=True)
class Period:
    day: date
    zone: str


def make_report(spec: Spec, day: date, *, events_path: Path) -> Path:
    """Write the report of `day`; returns its directory."""
    period = Period(day, spec.timezone)
    sections = daily_sections(spec, period, events_path)
    target = spec.home / "reports" / f"daily-{day.isoformat()}"
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    title = f"{spec.name}, {day.isoformat()} ({spec.timezone})"
    (new / "report.md").write_text(as_markdown(title, sections))
    (new / "report.html").write_text(as_html(title, sections))
    for section in sections:
        pa_csv.write_csv(section.table, new / f"{section.name}.csv")
    shutil.rmtree(target, ignore_errors=True)
    new.replace(target)
    return target


def daily_sections(spec: Spec, period: Period, events_path: Path) -> list[Section]:
    table = DeltaTable(str(events_path))
    rows = _day_rows(table, period.day)
    views = rows.filter(_is_view(rows))
    return [
        _overview(rows, views),
        _hours(rows, views, period),
        _pages(views),
        _services(rows),
        _funnel(views, spec),
        _retention(table, views, period),
        _hosts(rows),
    ]


def make_due_reports(spec: Spec, now: datetime) -> list[Path]:
    """Reports of days that closed since the last time, however long ago that was."""
    events = table_path(spec, EVENTS)
    due = due_days(
        done=reported_days(spec.home),
        first=first_day(events),
        now=now.astimezone(ZoneInfo(spec.timezone)),
        delay=timedelta(milliseconds=spec.watermark_delay_ms),
    )
    return [make_report(spec, day, events_path=events) for day in due]


def due_days(*, done: set[date], first: date | None, now: datetime, delay: timedelta) -> list[date]:
    """Days that are closed and have no report; `now` is in the declared zone.

    A day is closed when an event of its last second would be late. After a pause all that
    were missed are due, oldest first.
    """
    if first is None:
        return []
    last = (now - delay).date() - timedelta(days=1)
    days = [first + timedelta(days=each) for each in range((last - first).days + 1)]
    return [day for day in days if day not in done]


def reported_days(home: Path) -> set[date]:
    found = set()
    for path in (home / "reports").glob("daily-*"):
        try:
            found.add(date.fromisoformat(path.name.removeprefix("daily-")))
        except ValueError:
            continue  # half written, or not ours
    return found


def first_day(events_path: Path) -> date | None:
    if not DeltaTable.is_deltatable(str(events_path)):
        return None
    days = [each["date"] for each in DeltaTable(str(events_path)).partitions()]
    return min((date.fromisoformat(day) for day in days if day), default=None)


# -- reading ---------------------------------------------------------------------------------


def _day_rows(table: DeltaTable, day: date) -> pa.Table:
    found = table.to_pyarrow_table(filters=[("date", "=", day.isoformat())], columns=list(_COLUMNS))
    return found.filter(pc.is_null(found["problem"]))


def _is_view(rows: pa.Table) -> pa.ChunkedArray:
    is_access = pc.is_in(rows["format"], value_set=pa.array(["combined", "common"]))
    return pc.and_(is_access, pc.is_valid(rows["path"]))


def _is_error(rows: pa.Table) -> pa.ChunkedArray:
    by_status = pc.fill_null(pc.greater_equal(rows["status"], 500), False)
    levels = pa.array(["emergency", "alert", "critical", "crit", "fatal", "error", "err"])
    return pc.or_(by_status, pc.is_in(rows["level"], value_set=levels))


# -- one function for each section -----------------------------------------------------------


def _overview(rows: pa.Table, views: pa.Table) -> Section:
    values = {
        "lines": rows.num_rows,
        "page views": views.num_rows,
        "visitors": pc.count_distinct(views["visitor"]).as_py(),
        "bytes sent": pc.sum(views["size_bytes"]).as_py() or 0,
        "errors": pc.sum(_is_error(rows)).as_py() or 0,
    }
    table = pa.table({"what": list(values), "count": list(values.values())})
    return Section("overview", "Overview", table)


def _hours(rows: pa.Table, views: pa.Table, period: Period) -> Section:
    """By the hours of the clock on the wall: an hour that comes twice has both in one row."""

    def per_hour(each: pa.Table) -> dict[int, int]:
        zoned = each["event_time"].cast(pa.timestamp("us", tz=period.zone))
        counts = pc.value_counts(pc.hour(zoned))
        return {row["values"]: row["counts"] for row in counts.to_pylist()}

    lines, seen = per_hour(rows), per_hour(views)
    hours = range(24)
    table = pa.table(
        {
            "hour": [f"{hour:02}:00" for hour in hours],
            "lines": [lines.get(hour, 0) for hour in hours],
            "views": [seen.get(hour, 0) for hour in hours],
        }
    )
    return Section("hours", "Traffic by hour", table, plot="views")


def _pages(views: pa.Table) -> Section:
    pages = views.group_by("path").aggregate([("path", "count"), ("visitor", "count_distinct")])
    pages = pages.rename_columns(["path", "views", "visitors"])
    pages = pages.sort_by([("views", "descending"), ("path", "ascending")]).slice(0, _TOP)
    return Section("pages", "Top pages", pages, plot="views")


def _services(rows: pa.Table) -> Section:
    """Exact percentiles: the day is in memory, unlike in the windows."""
    known = rows.filter(pc.is_valid(rows["service"]))
    result = []
    for name in sorted(pc.unique(known["service"]).to_pylist()):
        mine = known.filter(pc.equal(known["service"], name))
        quantiles = pc.quantile(mine["duration_ms"], [0.5, 0.95, 0.99], interpolation="lower")
        p50, p95, p99 = quantiles.to_pylist()
        errors = pc.sum(_is_error(mine)).as_py() or 0
        result.append(
            {
                "service": name,
                "requests": mine.num_rows,
                "errors": errors,
                "p50_ms": p50,
                "p95_ms": p95,
                "p99_ms": p99,
            }
        )
    table = pa.Table.from_pylist(result, schema=_SERVICES)
    return Section("services", "Services: latency and errors", table, plot="requests")


def _funnel(views: pa.Table, spec: Spec) -> Section:
    from millstream.pipeline.funnel import funnel_counts

    ordered = views.sort_by([("visitor", "ascending"), ("event_time", "ascending")])
    seen: dict[str, list[tuple[int, str]]] = defaultdict(list)
    known = ordered.filter(pc.is_valid(ordered["visitor"]))
    for visitor, at, path in zip(
        known["visitor"].to_pylist(),
        known["event_time"].cast(pa.int64()).to_pylist(),
        known["path"].to_pylist(),
        strict=True,
    ):
        seen[visitor].append((at, path))
    counts = funnel_counts(seen.values(), spec.funnel, gap_us=spec.session_gap_ms * 1000)
    table = pa.table({"step": list(spec.funnel), "visits": counts[1:]})
    return Section("funnel", f"Funnel of {counts[0]:,} visits", table, plot="visits")


def _retention(table: DeltaTable, views: pa.Table, period: Period) -> Section:
    """Of each earlier day's visitors, how many came on this day."""
    today = pc.unique(views["visitor"])
    days, came, back = [], [], []
    for ago in range(1, _RETENTION_DAYS + 1):
        day = period.day - timedelta(days=ago)
        rows = _day_rows(table, day)
        before = pc.drop_null(pc.unique(rows.filter(_is_view(rows))["visitor"]))
        days.append(day.isoformat())
        came.append(len(before))
        back.append(pc.sum(pc.is_in(before, value_set=today)).as_py() or 0)
    result = pa.table({"day": days, "visitors": came, "came_back": back})
    return Section("retention", "Visitors of earlier days who came back", result)


def _hosts(rows: pa.Table) -> Section:
    minutes = rows.append_column("minute", pc.floor_temporal(rows["event_time"], unit="minute"))
    per_minute = minutes.group_by(["host", "minute"]).aggregate([("format", "count")])
    hosts = per_minute.group_by("host").aggregate(
        [("format_count", "sum"), ("format_count", "max"), ("minute", "count")]
    )
    hosts = hosts.rename_columns(["host", "lines", "lines_in_busiest_minute", "minutes_heard"])
    return Section("hosts", "Hosts: load and capacity", hosts.sort_by("host"), plot="lines")
