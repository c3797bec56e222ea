"""What a pipeline has written, as values for a page: windows, alerts, funnel, dead letters.

Plain functions of records. A record that is not what a pipeline writes is passed over: the topics
may have other writers.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

from millstream.console.text import show, visible
from millstream.records.records import Record

_NAMES_MAX: Final = 4
_TEXT_MAX: Final = 200
# A run writes its status every second, but not while it writes a report.
_SILENCE_MAX: Final = timedelta(minutes=1)
ROOT_SUFFIXES: Final = (".live", ".windows")


@dataclass(frozen=True, slots=True)
class WindowChart:
    """One line for each name over the windows; None where a window has no such row."""

    title: str
    unit: str
    times: list[float]
    series: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class AlertRow:
    since: str
    kind: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class FunnelStep:
    step: str
    visits: int
    share: float


@dataclass(frozen=True, slots=True)
class TemplateRow:
    template: str
    count: int
    # Of the messages of the window.
    share: float
    sample: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    reason: str
    detail: str
    line: str


@dataclass(frozen=True, slots=True)
class StageRow:
    """A streaming query, as its last report says."""

    name: str
    is_running: bool
    batch: int
    rows: int
    rows_per_second: float
    lag: int | None
    batch_ms: int
    state_rows: int
    dropped: int
    watermark: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class RunStatus:
    written_at: str
    # It did not say that it ended, and has said nothing for a while: probably killed.
    is_unheard: bool
    # Lines since the run began: good, unparsable, ahead, late.
    lines: dict[str, int]
    queries: list[StageRow]


def parse_status(text: str, now: datetime) -> RunStatus | None:
    """The status file of a run; None if it is not one that this version knows."""
    try:
        value = json.loads(text)
        written = datetime.fromisoformat(value["written_at"])
        queries = [
            StageRow(**{each.name: row[each.name] for each in fields(StageRow)})
            for row in value["queries"]
        ]
        is_running = any(query.is_running for query in queries)
        is_unheard = is_running and now - written > _SILENCE_MAX
        lines = {str(kind): int(count) for kind, count in value["lines"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return RunStatus(value["written_at"], is_unheard, lines, queries)


def pipeline_names(topics: Iterable[str]) -> list[str]:
    """A pipeline has both topics of windows, under its name."""
    known = set(topics)
    live, final = ROOT_SUFFIXES
    return sorted(
        name.removesuffix(final)
        for name in known
        if name.endswith(final) and name.removesuffix(final) + live in known
    )


def _rows(records: Iterable[Record]) -> Iterable[dict[str, Any]]:
    for record in records:
        if record.value is None:
            continue
        try:
            row = json.loads(record.value)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


class Windows:
    """The newest row of each output and name in each window."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._rows: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        for row in _rows(records):
            start, output, name = row.get("window_start"), row.get("output"), row.get("name")
            if isinstance(start, str) and isinstance(output, str) and isinstance(name, str):
                self._rows.setdefault(start, {})[output, name] = row
        self._starts = sorted(start for start in self._rows if _seconds(start) is not None)

    @property
    def newest(self) -> str | None:
        return self._starts[-1] if self._starts else None

    def chart(self, title: str, output: str, value: str, unit: str) -> WindowChart:
        """The names with the largest values, at most four.

        Without the newest window, unless it is the only one: it is still being filled, and every
        line would end with a fall.
        """
        starts = self._starts[:-1] or self._starts
        totals: Counter[str] = Counter()
        for rows in self._rows.values():
            for (found, name), row in rows.items():
                if found == output:
                    totals[name] += float(row.get(value) or 0)  # type: ignore[assignment]
        names = [name for name, _ in totals.most_common(_NAMES_MAX)]
        series: dict[str, list[float | None]] = {}
        for name in names:
            series[visible(name[:40])] = [
                _number(self._rows[start].get((output, name), {}).get(value)) for start in starts
            ]
        times = [_seconds(start) or 0.0 for start in starts]
        return WindowChart(title, unit, times, series)

    def top_pages(self) -> list[tuple[str, int]]:
        for start in reversed(self._starts):
            for (output, _), row in self._rows[start].items():
                pages = row.get("top_pages")
                if output == "site" and isinstance(pages, list) and pages:
                    return [
                        (visible(str(each["path"])[:80]), int(each["count"])) for each in pages[:8]
                    ]
        return []


def _seconds(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def alerts(records: Sequence[Record], limit: int) -> list[AlertRow]:
    """The newest first; an alert that changed counts once."""
    found: dict[tuple[str, ...], AlertRow] = {}
    for row in _rows(records):
        texts = [
            visible(str(row.get(key, ""))[:_TEXT_MAX])
            for key in ("since", "kind", "subject", "text")
        ]
        found.pop(tuple(texts[:3]), None)
        found[tuple(texts[:3])] = AlertRow(*texts)
    return list(found.values())[-limit:][::-1]


def funnel(records: Sequence[Record]) -> list[FunnelStep]:
    """Visits, then those that reached each step: of all windows that were read."""
    windows: dict[str, list[tuple[str, int]]] = {}
    for row in _rows(records):
        steps = row.get("steps")
        if isinstance(steps, list):
            listed = [(str(each.get("step")), int(each.get("visits") or 0)) for each in steps]
            windows[str(row.get("window_start"))] = [
                ("visits", int(row.get("visits") or 0)),
                *listed,
            ]
    totals: dict[str, int] = {}
    for listed in windows.values():
        for step, visits in listed:
            totals[step] = totals.get(step, 0) + visits
    most = max(totals.values(), default=0)
    return [
        FunnelStep(visible(step[:60]), visits, visits / most if most else 0.0)
        for step, visits in totals.items()
    ]


def top_templates(records: Iterable[Record], limit: int) -> tuple[str | None, list[TemplateRow]]:
    """The start of the newest full window that has messages, and its most frequent templates.

    A window is full when there is a newer one. Where there is only one, it is taken as it is.
    """
    windows = {
        str(row.get("window_start")): row
        for row in _rows(records)
        if isinstance(row.get("top"), list)
    }
    newest_first = sorted(windows, reverse=True)
    newest = windows[newest_first[min(1, len(newest_first) - 1)]] if newest_first else None
    if newest is None:
        return None, []
    messages = max(1, int(_number(newest.get("messages")) or 0))
    rows = [
        TemplateRow(
            visible(str(each.get("template", ""))[:_TEXT_MAX]),
            int(_number(each.get("count")) or 0),
            (_number(each.get("count")) or 0) / messages,
            visible(str(each.get("sample", ""))[:_TEXT_MAX]),
        )
        for each in newest["top"][:limit]
        if isinstance(each, dict)
    ]
    return visible(str(newest.get("window_start"))[:40]), rows


def dead_letters(records: Sequence[Record], limit: int) -> tuple[dict[str, int], list[DeadLetter]]:
    """How many of each reason, and the newest ones."""
    reasons: Counter[str] = Counter()
    rows = []
    for record in records:
        headers = {name: value or b"" for name, value in record.headers}
        reason = visible(headers.get("reason", b"unknown").decode(errors="replace")[:40])
        reasons[reason] += 1
        detail = visible(headers.get("detail", b"").decode(errors="replace")[:_TEXT_MAX])
        rows.append(DeadLetter(reason, detail, show(record.value, as_="text").text))
    return dict(reasons.most_common()), rows[-limit:][::-1]
