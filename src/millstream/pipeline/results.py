"""Results as records of topics: what `open_results` found, as JSON.

The texts are those that Spark's `to_json` gives for the same values, so that a result that
`rebuild` computes in Spark has the same key.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from millstream.pipeline import outputs
from millstream.pipeline.anomalies import AnomalyAlert
from millstream.pipeline.error_bursts import find_burst
from millstream.pipeline.json_times import json_time
from millstream.pipeline.open_results import Changes, Site, Window
from millstream.pipeline.spec import Spec
from millstream.pipeline.template_log import WindowTemplates
from millstream.pipeline.visit_log import Visit
from millstream.pipeline.window_totals import Gauge

# Of the rank: the value given for p95 lies between the true p94.9 and p95.1.
PERCENTILE_RANK_ERROR: Final = 0.001
PERCENTILES: Final = (0.5, 0.95, 0.99)
WINDOW_KEY: Final = ("window_start", "output", "name")
VISIT_KEY: Final = ("visitor", "session_start")
ALERT_KEY: Final = ("kind", "subject", "since")
FUNNEL_KEY: Final = ("window_start",)
TEMPLATES_KEY: Final = ("window_start",)

# `json.dumps` would make one for every call.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

# Topic, key, value; no value removes the key.
Record = tuple[str, str, str | None]
RECORDS_SCHEMA: Final = pa.schema(
    [("topic", pa.string()), ("key", pa.string()), ("value", pa.string())]
)


def records_of(changes: Changes, spec: Spec) -> list[Record]:
    """Everything that a batch makes known, in an order that does not change."""
    return list(_Records(spec).all(changes))


def to_batch(records: Iterable[Record]) -> pa.RecordBatch:
    columns = list(zip(*records, strict=True)) or [()] * len(RECORDS_SCHEMA)
    arrays = [pa.array(each, pa.string()) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS_SCHEMA)


class _Records:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._zone = ZoneInfo(spec.timezone)

    def all(self, changes: Changes) -> Iterator[Record]:
        for window in changes.live:
            yield self._record(outputs.LIVE, WINDOW_KEY, self.window(window, is_final=False))
        for window in changes.live:
            yield from self._bursts(window)
        for window in changes.closed:
            row = self.window(window, is_final=True)
            yield self._record(outputs.FINAL, WINDOW_KEY, row)
        for visitor, visit in changes.ended_visits:
            row = self.visit(visitor, visit, is_final=True)
            yield self._record(outputs.SESSIONS, VISIT_KEY, row)
        for window_us, counts in changes.funnels.items():
            yield self._record(outputs.FUNNELS, FUNNEL_KEY, self.funnel(window_us, counts))
        for templates in changes.templates:
            yield self._record(outputs.TEMPLATES, TEMPLATES_KEY, self.templates(templates))
        for found in changes.template_alerts:
            row = {
                "kind": found.kind,
                "subject": found.template,
                "since": self._time(found.since_us),
                "text": found.text,
            }
            yield self._record(outputs.ALERTS, ALERT_KEY, row)
        for anomaly in changes.anomalies:
            yield self._record(outputs.ALERTS, ALERT_KEY, self.anomaly(anomaly))
        yield from self._by_clock(changes)

    def _by_clock(self, changes: Changes) -> Iterator[Record]:
        visits = outputs.VISITS.topic(self._spec)
        for visitor, shown in changes.open_visits.items():
            key = _json({"visitor": f"{visitor:016x}"})
            value = None if shown is None else _json(self.visit(visitor, shown, is_final=False))
            yield visits, key, value
        for alert in changes.hosts:
            row = {
                "kind": alert.kind,
                "subject": alert.host,
                "since": self._time(alert.since_ms * 1000),
                "text": alert.text,
            }
            yield self._record(outputs.ALERTS, ALERT_KEY, row)

    def _bursts(self, window: Window) -> Iterator[Record]:
        burst = find_burst(
            window.key,
            window.totals,
            error_share=self._spec.error_share,
            error_count_min=self._spec.error_count_min,
        )
        if burst is not None:
            row = {
                "kind": "errors",
                "subject": burst.service,
                "since": self._time(burst.since_us),
                "text": burst.text,
            }
            yield self._record(outputs.ALERTS, ALERT_KEY, row)

    def _record(
        self, output: outputs.Output, key: tuple[str, ...], row: Mapping[str, Any]
    ) -> Record:
        return output.topic(self._spec), _json({name: row[name] for name in key}), _json(row)

    def _time(self, at_us: int) -> str:
        return json_time(at_us, self._zone)

    # -- rows ------------------------------------------------------------------------------

    def window(self, window: Window, *, is_final: bool) -> dict[str, Any]:
        start_us, output, name = window.key
        totals, window_ms = window.totals, self._spec.window_ms
        row: dict[str, Any] = {
            "window_start": self._time(start_us),
            "window_end": self._time(start_us + window_ms * 1000),
            "output": output,
            "name": name,
            "final": is_final,
            "count": totals.count,
            "per_second": per_second(totals.count, window_ms),
            "errors": totals.errors,
            "size_bytes": totals.size_bytes,
        }
        if totals.duration_max is not None:
            for share, value in zip(PERCENTILES, totals.durations.at(PERCENTILES), strict=True):
                row[f"duration_ms_p{share * 100:g}"] = value
            row["duration_ms_max"] = totals.duration_max
            row["percentile_rank_error"] = PERCENTILE_RANK_ERROR
        if window.site is not None:
            row["visitors"] = len(window.site.visitors)
            row["visitors_relative_sd"] = 0.0
            row["top_pages"] = _top_pages(window.site, self._spec.top)
        for gauge_name, gauge in zip(self._spec.gauges, totals.gauges, strict=False):
            if gauge.count:
                row[gauge_name] = _gauge(gauge)
        for place, grown in window.counters.items():
            row[self._spec.counters[place]] = {
                "increase": grown.increase,
                "per_second": grown.per_second,
            }
        return row

    def templates(self, window: WindowTemplates) -> dict[str, Any]:
        return {
            "window_start": self._time(window.window_us),
            "window_end": self._time(window.window_us + self._spec.window_ms * 1000),
            "final": window.is_final,
            "messages": window.messages,
            "templates": window.templates,
            "top": [
                {"template": each.template, "count": each.count, "sample": each.sample}
                for each in window.top
            ],
            "others": window.messages - sum(each.count for each in window.top),
        }

    def anomaly(self, alert: AnomalyAlert) -> dict[str, Any]:
        output, name, measure = alert.key
        return {
            "kind": alert.kind,
            "subject": f"{output}/{name}/{measure}",
            "since": self._time(alert.since_us),
            "text": alert.text,
            "output": output,
            "name": name,
            "measure": measure,
            "value": alert.value,
            "expected": alert.usual.expected,
            "expected_low": alert.usual.low,
            "expected_high": alert.usual.high,
        }

    def visit(self, visitor: int, visit: Visit, *, is_final: bool) -> dict[str, Any]:
        return {
            "visitor": f"{visitor:016x}",
            "session_start": self._time(visit.start_us),
            "session_end": self._time(visit.end_us),
            "final": is_final,
            "views": visit.views,
            "errors": visit.errors,
            "funnel_step": visit.depth,
            "funnel_steps": len(self._spec.funnel),
        }

    def funnel(self, window_us: int, counts: list[int]) -> dict[str, Any]:
        steps = zip(self._spec.funnel, counts[1:], strict=True)
        return {
            "window_start": self._time(window_us),
            "window_end": self._time(window_us + self._spec.window_ms * 1000),
            "final": False,
            "visits": counts[0],
            "steps": [{"step": page, "visits": visits} for page, visits in steps],
        }


def per_second(count: int, window_ms: int) -> float:
    """To three digits; half of the last one is rounded up."""
    return (2 * count * 1_000_000 + window_ms) // (2 * window_ms) / 1000


def _top_pages(site: Site, count: int) -> list[dict[str, Any]]:
    top = nsmallest(count, site.pages.items(), key=lambda page: (-page[1], page[0]))
    return [{"path": path, "count": views} for path, views in top]


def _gauge(gauge: Gauge) -> dict[str, float]:
    mean = gauge.total / gauge.count
    # Each is finite, but their sum need not be, and JSON has no word for that.
    return {"mean": mean, "max": gauge.largest} if math.isfinite(mean) else {"max": gauge.largest}


def _json(row: Mapping[str, Any]) -> str:
    return _ENCODER.encode(row)
