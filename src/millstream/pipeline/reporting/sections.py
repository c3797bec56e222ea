"""What a report says: traffic, pages, funnel, returning visitors, latency, errors, capacity.

One function for each section. Each asks the table of events and gives a small table.
"""

from collections import defaultdict
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.compute import Expression

from millstream.pipeline.funnel import funnel_counts
from millstream.pipeline.reporting.events import (
    IS_ERROR,
    IS_VIEW,
    LATENCY_DIGITS,
    VISITOR,
    Aggregate,
    Events,
    count,
    count_where,
    distinct,
    field_number,
    percentiles,
)
from millstream.pipeline.reporting.messages import messages
from millstream.pipeline.reporting.periods import Kind, Period, period_of
from millstream.pipeline.reporting.text import Section
from millstream.pipeline.spec import Spec

_TOP: Final = 10
_ERRORS_TOP: Final = 15
_EARLIER: Final = {Kind.DAILY: 7, Kind.WEEKLY: 4, Kind.MONTHLY: 3}
_NOUN: Final = {Kind.DAILY: "day", Kind.WEEKLY: "week", Kind.MONTHLY: "month"}
_HOUR_US: Final = 3_600_000_000
_FIELDS: Final = "fields"

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()


def make_sections(spec: Spec, period: Period, dataset: Any) -> list[Section]:
    events = Events(dataset)
    return [
        overview(events, period),
        traffic(events, period),
        pages(events, period),
        funnel(events, period, spec),
        retention(events, period),
        latency(events, period),
        errors(events, period),
        messages(events, period, dataset.schema.names),
        capacity(events, period),
        gauges(events, period, spec.gauges if _FIELDS in dataset.schema.names else ()),
    ]


def _table(rows: list[dict[str, Any]], columns: dict[str, pa.DataType]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


_TOTALS: Final = (
    count("lines"),
    count_where("page_views", IS_VIEW),
    distinct("visitors", VISITOR),
    Aggregate("bytes_sent", "hash_sum", pc.if_else(IS_VIEW, pc.field("size_bytes"), None)),
    count_where("errors", IS_ERROR),
)


def _totals_by(events: Events, period: Period, key: Expression) -> dict[Any, dict[str, int]]:
    rows = events.grouped(period, {"key": key}, _TOTALS)
    return {row.pop("key"): {name: value or 0 for name, value in row.items()} for row in rows}


def _no_totals() -> dict[str, int]:
    return {each.name: 0 for each in _TOTALS}


def overview(events: Events, period: Period) -> Section:
    rows = []
    for each in (period, *period.before(1)):
        totals = _totals_by(events, each, pc.scalar(0)).get(0, _no_totals())
        share = _percent(totals["errors"], totals["lines"])
        name = each.name.partition("-")[2]
        rows.append({_NOUN[period.kind]: name, **totals, "errors_percent": share})
    columns = {_NOUN[period.kind]: _TEXT, **dict.fromkeys(_no_totals(), _WHOLE)}
    table = _table(rows, {**columns, "errors_percent": _NUMBER})
    return Section("overview", "Overview", table, is_summary=True)


def traffic(events: Events, period: Period) -> Section:
    """By hour in a day, by day in what is longer; hours as they came, 23 to 25 of them."""
    is_day = period.kind is Kind.DAILY
    key = _hour_of(period) if is_day else pc.field("date")
    totals = _totals_by(events, period, key)
    times = events.latencies(period, {"key": key})
    rows = []
    for index, part in enumerate(period.parts()):
        found = index if is_day else period.days[index].isoformat()
        [p95] = percentiles(times.get((found,), {}), [0.95])
        row = {"hour" if is_day else "day": part.label, **totals.get(found, _no_totals())}
        rows.append({**row, "service_p95_ms": p95})
    first = {"hour" if is_day else "day": _TEXT, **dict.fromkeys(_no_totals(), _WHOLE)}
    return Section(
        "traffic",
        f"Traffic by {'hour' if is_day else 'day'}",
        _table(rows, {**first, "service_p95_ms": _NUMBER}),
        charts=("lines", "page_views", "errors", "service_p95_ms"),
    )


def _hour_of(period: Period) -> Expression:
    begin_us = round(period.begins_at.timestamp()) * 1_000_000
    since = pc.subtract(pc.field("event_time").cast(pa.int64()), pc.scalar(begin_us))
    return pc.divide(since, pc.scalar(_HOUR_US))


def pages(events: Events, period: Period) -> Section:
    found = events.grouped(
        period,
        {"path": pc.field("path")},
        [count("views"), distinct("visitors", pc.field("visitor"))],
        where=IS_VIEW,
    )
    total = sum(row["views"] for row in found)
    found.sort(key=lambda row: (-row["views"], row["path"]))
    rows = [{**row, "views_percent": _percent(row["views"], total)} for row in found[:_TOP]]
    columns = {"path": _TEXT, "views": _WHOLE, "visitors": _WHOLE, "views_percent": _NUMBER}
    title = f"Top pages of {len(found):,}" if len(found) > _TOP else "Pages"
    return Section("pages", title, _table(rows, columns), bar="views")


def funnel(events: Events, period: Period, spec: Spec) -> Section:
    """Day by day: a visit that is open at midnight counts as a new one after it."""
    totals = [0] * (len(spec.funnel) + 1)
    for day in period.days:
        views = events.rows(
            period_of(Kind.DAILY, day, period.zone),
            ["visitor", "event_time", "path"],
            where=IS_VIEW & pc.field("visitor").is_valid(),
        )
        counts = funnel_counts(_by_visitor(views), spec.funnel, gap_us=spec.session_gap_ms * 1000)
        totals = [total + new for total, new in zip(totals, counts, strict=True)]
    visits, *reached = totals
    rows = [
        {
            "step": step,
            "visits": here,
            "of_all_percent": _percent(here, visits),
            "of_step_before_percent": _percent(here, before),
        }
        for step, here, before in zip(spec.funnel, reached, totals, strict=False)
    ]
    columns = {
        "step": _TEXT,
        "visits": _WHOLE,
        "of_all_percent": _NUMBER,
        "of_step_before_percent": _NUMBER,
    }
    title = f"Funnel of {visits:,} visits"
    return Section("funnel", title, _table(rows, columns), bar="visits")


def _by_visitor(views: pa.Table) -> list[list[tuple[int, str]]]:
    ordered = views.sort_by([("visitor", "ascending"), ("event_time", "ascending")])
    seen: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for visitor, at, path in zip(
        ordered["visitor"].to_pylist(),
        ordered["event_time"].cast(pa.int64()).to_pylist(),
        ordered["path"].to_pylist(),
        strict=True,
    ):
        seen[visitor].append((at, path))
    return list(seen.values())


def retention(events: Events, period: Period) -> Section:
    """Of each earlier period's visitors, how many came in this one."""
    noun = _NOUN[period.kind]
    now = events.visitors(period)
    known: set[str] = set()
    rows = []
    for earlier in period.before(_EARLIER[period.kind]):
        before = events.visitors(earlier)
        known |= before
        back = len(before & now)
        rows.append(
            {
                noun: earlier.name.partition("-")[2],
                "visitors": len(before),
                "came_back": back,
                "came_back_percent": _percent(back, len(before)),
            }
        )
    columns = {noun: _TEXT, "visitors": _WHOLE, "came_back": _WHOLE, "came_back_percent": _NUMBER}
    return Section(
        "retention",
        f"Visitors of earlier {noun}s who came back",
        _table(rows, columns),
        note=f"{len(now & known):,} of {len(now):,} visitors of this {noun} had come in the "
        f"{len(rows)} {noun}s before.",
        bar="came_back_percent",
    )


def latency(events: Events, period: Period) -> Section:
    service = {"service": pc.field("service")}
    found = events.grouped(
        period,
        service,
        [count("requests"), Aggregate("max_ms", "hash_max", pc.field("duration_ms"))],
        where=pc.field("service").is_valid(),
    )
    times = events.latencies(period, service)
    rows = []
    for row in sorted(found, key=lambda each: str(each["service"])):
        counts = times.get((row["service"],), {})
        p50, p95, p99 = percentiles(counts, (0.5, 0.95, 0.99))
        rows.append({**row, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99})
    numbers = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms", "max_ms"), _NUMBER)
    return Section(
        "latency",
        "Latency of services",
        _table(rows, {"service": _TEXT, "requests": _WHOLE, **numbers}),
        note=f"Percentiles of all requests, exact to {LATENCY_DIGITS} digits.",
        bar="p95_ms",
    )


def errors(events: Events, period: Period) -> Section:
    """Answers of 500 and above, and lines of level error and above, by who had them."""
    is_service = pc.field("service").is_valid()
    kind = pc.if_else(is_service, "service", pc.if_else(IS_VIEW, "page", "log"))
    name = pc.if_else(IS_VIEW, pc.field("path"), pc.coalesce(pc.field("program"), pc.field("host")))
    found = events.grouped(
        period,
        {"where": kind, "name": pc.coalesce(pc.field("service"), name)},
        [count("lines"), count_where("errors", IS_ERROR)],
    )
    failed = [row for row in found if row["errors"]]
    failed.sort(key=lambda row: (-row["errors"], row["where"], str(row["name"])))
    rows = [
        {**row, "errors_percent": _percent(row["errors"], row["lines"])}
        for row in failed[:_ERRORS_TOP]
    ]
    columns = {"where": _TEXT, "name": _TEXT, "lines": _WHOLE, "errors": _WHOLE}
    return Section(
        "errors",
        "Errors",
        _table(rows, {**columns, "errors_percent": _NUMBER}),
        note="Answers of 500 and above, and lines of level error and above.",
        bar="errors",
    )


def capacity(events: Events, period: Period) -> Section:
    """How much each host said, and when most."""
    by_minute = events.grouped(
        period,
        {
            "host": pc.field("host"),
            "minute": pc.floor_temporal(pc.field("event_time"), unit="minute"),
        },
        [count("lines")],
    )
    minutes: dict[str, list[tuple[int, datetime]]] = defaultdict(list)
    for row in by_minute:
        minutes[row["host"] or ""].append((row["lines"], row["minute"]))
    zone = ZoneInfo(period.zone)
    rows = []
    for host, found in sorted(minutes.items()):
        most, at = max(found, key=lambda each: (each[0], -each[1].timestamp()))
        total = sum(lines for lines, _ in found)
        rows.append(
            {
                "host": host,
                "lines": total,
                "minutes_heard": len(found),
                "lines_per_minute": round(total / len(found), 1),
                "most_in_a_minute": most,
                "busiest_minute": f"{at.astimezone(zone):%Y-%m-%d %H:%M %Z}",
            }
        )
    columns = {
        "host": _TEXT,
        "lines": _WHOLE,
        "minutes_heard": _WHOLE,
        "lines_per_minute": _NUMBER,
        "most_in_a_minute": _WHOLE,
        "busiest_minute": _TEXT,
    }
    return Section("capacity", "Load of hosts", _table(rows, columns), bar="most_in_a_minute")


def gauges(events: Events, period: Period, names: tuple[str, ...]) -> Section:
    """Mean and largest of what hosts tell of themselves, where they do."""
    wanted = [
        Aggregate(f"{name}_{word}", f"hash_{word}", field_number(name))
        for name in names
        for word in ("mean", "max")
    ]
    found: list[dict[str, Any]] = []
    if wanted:
        host = {"host": pc.field("host")}
        found = events.grouped(period, host, wanted, where=pc.field(_FIELDS).is_valid())
    # Sums of fractions depend on their order, which is not fixed.
    rows = [
        {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
        for row in sorted(found, key=lambda row: str(row["host"]))
        if any(row[each.name] is not None for each in wanted)
    ]
    return Section(
        "gauges",
        "What hosts tell of themselves",
        _table(rows, {"host": _TEXT, **{each.name: _NUMBER for each in wanted}}),
        note=f"Fields of their lines: {', '.join(names)}." if names else "",
        bar=wanted[1].name if wanted else None,
    )
