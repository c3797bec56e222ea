"""Events made by hand, as the parser gives them to `partials`; and results to compare."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.lines.schema import EVENT_SCHEMA
from millstream.pipeline import partials
from millstream.pipeline.anomalies import AnomalyRules
from millstream.pipeline.kept_state import BatchParts
from millstream.pipeline.open_results import Changes, OpenResults
from millstream.pipeline.partials import Gathering, Rules

SECOND_US = 1_000_000
RULES = Rules(
    window_us=60 * SECOND_US,
    gap_us=30 * SECOND_US,
    funnel=("/a", "/b*", "/c"),
    gauges=2,
    counters=1,
    has_templates=True,
)
ANOMALY_RULES = AnomalyRules(
    sensitivity=6.0,
    window_us=RULES.window_us,
    timezone="UTC",
    gauges=("cpu", "memory"),
    counters=("served",),
)
DELAY_US = 100 * SECOND_US
SILENT_MS = 20_000
_SCHEMA = pa.schema([EVENT_SCHEMA.field(name) for name in RULES.needed])
# Later than all others: closes every window and visit before it.
CLOSING_US = 10**6 * SECOND_US


@dataclass(frozen=True)
class Event:
    at_us: int
    host: str | None = None
    service: str | None = None
    path: str | None = None
    visitor: int | None = None
    status: int | None = None
    size_bytes: int | None = None
    duration_ms: float | None = None
    gauges: tuple[float | None, float | None] = (None, None)
    counter: float | None = None
    source: str = "s"
    message: str | None = None
    level: str | None = None
    problem: str | None = None


def batch_of(events: list[Event], *, partition: int = 0, first: int = 0) -> pa.RecordBatch:
    rows = [
        {
            **{name: getattr(each, name) for name in ("host", "service", "path", "status")},
            **{name: getattr(each, name) for name in ("size_bytes", "duration_ms", "level")},
            "problem": each.problem,
            "event_time": each.at_us,
            "format": "json" if each.path is None else "combined",
            "visitor": None if each.visitor is None else f"{each.visitor:016x}",
            "gauges": [*each.gauges, each.counter],
            "source": each.source,
            "message": each.message,
            "partition": partition,
            "offset": first + number,
        }
        for number, each in enumerate(events)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def gathered(events: list[Event], *, partition: int = 0, first: int = 0) -> Gathering:
    gathering = Gathering(RULES)
    if events:
        gathering.add(batch_of(events, partition=partition, first=first))
    return gathering


def parts_of(*tasks: Gathering, now_ms: int | None = None) -> BatchParts:
    """A micro-batch of these tasks."""
    newest = [each.newest_us for each in tasks if each.newest_us is not None]
    tables = [(name, partials.to_bytes(table)) for t in tasks for name, table in t.tables().items()]
    return BatchParts(tables, max(newest, default=None), now_ms)


def new_results() -> OpenResults:
    return OpenResults(
        RULES,
        delay_us=DELAY_US,
        silent_after_ms=SILENT_MS,
        anomaly_rules=ANOMALY_RULES,
        top_templates=3,
    )


def add(results: OpenResults, parts: BatchParts) -> Changes:
    return results.add(partials.from_bytes(parts.tables), parts.newest_us, parts.now_ms)


def plain(changes: Changes) -> dict[str, Any]:
    """Everything in it as values that can be compared."""

    def window(each: Any) -> tuple[Any, ...]:
        totals = each.totals
        durations = totals.durations.at((0.5, 0.95)) if totals.duration_max is not None else None
        site = each.site
        return (
            each.key,
            (totals.count, totals.errors, totals.size_bytes, totals.duration_max, durations),
            [(gauge.count, round(gauge.total, 6), gauge.largest) for gauge in totals.gauges],
            None if site is None else (site.visitors.tolist(), dict(sorted(site.pages.items()))),
            each.counters,
        )

    def visit(each: Any) -> tuple[int, ...]:
        return (each.start_us, each.end_us, each.views, each.errors, each.depth)

    return {
        "live": [window(each) for each in changes.live],
        "closed": [window(each) for each in changes.closed],
        "ended": sorted((visitor, visit(each)) for visitor, each in changes.ended_visits),
        "open": {
            v: None if each is None else visit(each) for v, each in changes.open_visits.items()
        },
        "funnels": changes.funnels,
        "hosts": changes.hosts,
        "anomalies": changes.anomalies,
        "templates": changes.templates,
        "template_alerts": changes.template_alerts,
    }
