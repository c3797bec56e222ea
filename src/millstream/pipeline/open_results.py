"""All results that are not final yet: the driver's side of a pipeline, without Spark.

Each micro-batch brings the partial results of its tasks; `add` merges them and returns what is to
be written. The same batches, in the same order, give the same results, so that they can be
computed again after a crash; that is what `kept_state` relies on. `now_ms` is the clock of a
batch, and a part of it.

Windows and visits are closed by the watermark: the newest event, less the delay that covers lines
that are late. A line for a window that is closed already does not count, and is counted as
dropped; that happens only if record timestamps go back by more than the pipeline file says.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.lines.arrays import to_numpy
from millstream.pipeline import partials
from millstream.pipeline.anomalies import Anomalies, AnomalyAlert, AnomalyRules, measured
from millstream.pipeline.counters import CounterLog, Growth
from millstream.pipeline.partials import Rules, Tables
from millstream.pipeline.silence import HeardHost, HostAlert, watch_hosts
from millstream.pipeline.template_log import TemplateAlert, TemplateLog, WindowTemplates
from millstream.pipeline.visit_log import Visit, VisitLog
from millstream.pipeline.window_totals import HOST, INPUT, SITE, WindowKey, WindowTotals


@dataclass(slots=True)
class Site:
    """Who looked at what in a window."""

    # In order, each once.
    visitors: NDArray[np.uint64]
    pages: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Window:
    key: WindowKey
    totals: WindowTotals
    # None for what is not the site.
    site: Site | None
    # Of a host, by the counter's place in the pipeline file.
    counters: dict[int, Growth] = field(default_factory=dict)


@dataclass(slots=True)
class Funnel:
    # Visits that began in a window, then how many of them reached each step.
    counts: list[int]
    # How many of them have not ended.
    going_on: int = 0

    def count(self, visit: Visit, by: int) -> None:
        """Add a visit, or take one out (-1) that changes."""
        for step in range(visit.depth + 1):
            self.counts[step] += by
        self.going_on += by


@dataclass(slots=True)
class Changes:
    """What a batch makes known."""

    live: list[Window] = field(default_factory=list)
    closed: list[Window] = field(default_factory=list)
    ended_visits: list[tuple[int, Visit]] = field(default_factory=list)
    # By visitor: the newest visit, or None if it is over.
    open_visits: dict[int, Visit | None] = field(default_factory=dict)
    # By the start of a window, in microseconds.
    funnels: dict[int, list[int]] = field(default_factory=dict)
    hosts: list[HostAlert] = field(default_factory=list)
    anomalies: list[AnomalyAlert] = field(default_factory=list)
    # Of open windows, then of closed ones.
    templates: list[WindowTemplates] = field(default_factory=list)
    template_alerts: list[TemplateAlert] = field(default_factory=list)


class OpenResults:
    def __init__(
        self,
        rules: Rules,
        *,
        delay_us: int,
        silent_after_ms: int,
        anomaly_rules: AnomalyRules | None,
        top_templates: int,
    ) -> None:
        """`anomaly_rules`: None if anomalies are not wanted."""
        self._rules = rules
        self._anomaly_rules = anomaly_rules
        self._delay_us = delay_us
        self._silent_after_ms = silent_after_ms
        self.newest_us: int | None = None
        # Lines that came after their window was closed.
        self.dropped = 0
        self.windows: dict[WindowKey, WindowTotals] = {}
        self.sites: dict[int, Site] = {}
        self.visits = VisitLog(rules.gap_us)
        self.counters = CounterLog(rules.window_us)
        self.templates = TemplateLog(rules.window_us, top_templates)
        self.anomalies = None if anomaly_rules is None else Anomalies(anomaly_rules)
        self.funnels: dict[int, Funnel] = {}
        self.hosts: dict[str, HeardHost] = {}
        # Visitors whose visit is shown as open, and when they were heard last.
        self.shown: dict[int, int] = {}
        # When a visit may be over by the clock, and whose it is; more may have been heard since.
        self._shown_until: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """How many things there is state of."""
        of_hosts = len(self.hosts) + len(self.counters)
        others = len(self.visits) + len(self.funnels) + len(self.templates)
        return len(self.windows) + of_hosts + others

    @property
    def watermark_us(self) -> int | None:
        return None if self.newest_us is None else self.newest_us - self._delay_us

    def add(self, tables: Tables, newest_us: int | None, now_ms: int | None) -> Changes:
        """Merge a batch; without a clock (None) only event time counts."""
        changes = Changes()
        closed_us = self._last_closed_us
        keys = self._add_windows(tables, closed_us)
        changes.templates = self.templates.add(tables[partials.SKELETONS], closed_us=closed_us)
        visitors, changes.funnels = self._add_visits(tables)
        if newest_us is not None:
            self.newest_us = max(newest_us, self.newest_us or newest_us)
        changes.live = [self._window(key) for key in keys]
        if now_ms is not None:
            self._watch(changes, {name for _, output, name in keys if output == HOST}, now_ms)
            self._show(changes, visitors, now_ms)
        self._close(changes)
        return changes

    # -- windows ---------------------------------------------------------------------------

    def _add_windows(self, tables: Tables, closed_us: int | None) -> list[WindowKey]:
        rows = tables[partials.WINDOWS]
        if closed_us is not None:
            is_closed = pc.less_equal(rows["window_us"], closed_us)
            if pc.any(is_closed).as_py():
                late = rows.filter(pc.and_(is_closed, pc.equal(rows["output"], INPUT)))
                self.dropped += pc.sum(late["count"]).as_py() or 0
                rows = rows.filter(pc.invert(is_closed))
        keys = set(partials.add_windows(self.windows, rows))
        for window_us, _, _ in [key for key in keys if key[1] == SITE]:
            self.sites.setdefault(window_us, Site(np.empty(0, np.uint64)))
        self._add_visitors(tables[partials.VISITORS])
        self._add_pages(tables[partials.PAGES])
        grown = self.counters.add(tables[partials.COUNTERS], closed_us=closed_us)
        keys |= {(window_us, HOST, host) for window_us, host in grown}
        # When the state is read back, there are samples of windows that are closed.
        return sorted(key for key in keys if key in self.windows)

    @property
    def _last_closed_us(self) -> int | None:
        """The start of the last window that the watermark has closed."""
        if self.watermark_us is None:
            return None
        return (self.watermark_us // self._rules.window_us - 1) * self._rules.window_us

    def _add_visitors(self, table: pa.Table) -> None:
        windows, visitors = (_numbers(table, name) for name in ("window_us", "visitor"))
        for window_us in np.unique(windows).tolist():
            if window_us in self.sites:
                site = self.sites[window_us]
                site.visitors = np.union1d(site.visitors, visitors[windows == window_us])

    def _add_pages(self, table: pa.Table) -> None:
        windows, counts = (table[name].to_pylist() for name in ("window_us", "count"))
        for window_us, path, count in zip(windows, table["path"].to_pylist(), counts, strict=True):
            if window_us in self.sites:
                pages = self.sites[window_us].pages
                pages[path] = pages.get(path, 0) + count

    def _window(self, key: WindowKey) -> Window:
        window_us, output, name = key
        site = self.sites[window_us] if output == SITE else None
        grown = self.counters.growth(window_us, name) if output == HOST else {}
        return Window(key, self.windows[key], site, grown)

    def _close(self, changes: Changes) -> None:
        watermark_us, last_us = self.watermark_us, self._last_closed_us
        if watermark_us is None or last_us is None:
            return
        closed = sorted(key for key in self.windows if key[0] <= last_us)
        changes.closed = [self._window(key) for key in closed]
        changes.anomalies = self._anomalies_in(changes.closed)
        for key in closed:
            del self.windows[key]
        for window_us in [each for each in self.sites if each <= last_us]:
            del self.sites[window_us]
        if closed:
            self.counters.close(last_us)
            templates, changes.template_alerts = self.templates.close(last_us)
            changes.templates += templates
        changes.ended_visits = self.visits.take_ended(watermark_us)
        for _, visit in changes.ended_visits:
            self.funnels[self._began(visit)].going_on -= 1
        for window_us in [each for each in self.funnels if each <= last_us]:
            if not self.funnels[window_us].going_on:
                del self.funnels[window_us]

    def _anomalies_in(self, closed: Sequence[Window]) -> list[AnomalyAlert]:
        """`closed`: in order of time."""
        found: list[AnomalyAlert] = []
        if self.anomalies is None or self._anomaly_rules is None:
            return found
        for start_us, windows in groupby(closed, key=lambda window: window.key[0]):
            values = [
                value
                for window in windows
                for value in measured(
                    window.key, window.totals, window.counters, self._anomaly_rules
                )
            ]
            found += self.anomalies.add(start_us, values)
        return found

    # -- visits ----------------------------------------------------------------------------

    def _add_visits(self, tables: Tables) -> tuple[list[int], dict[int, list[int]]]:
        """Whose visits changed, and the funnels that changed with them."""
        rows = list(_rows(tables[partials.VISITS]))
        watermark_us = self.watermark_us
        if watermark_us is not None:
            over_us = watermark_us - self._rules.gap_us
            rows = [row for row in rows if row[2] > over_us]
        visitors = sorted({row[0] for row in rows})
        before: dict[int, list[int]] = {}
        for window_us, visit in self._visits_of(visitors):
            funnel = self.funnels[window_us]
            before.setdefault(window_us, list(funnel.counts))
            funnel.count(visit, -1)
        for visitor, start_us, end_us, views, errors, reached in rows:
            self.visits.add(visitor, Visit(start_us, end_us, views, errors, reached))
        for visitor, at_us, partition, offset, step in _rows(tables[partials.STEPS]):
            self.visits.add_step(visitor, (at_us, partition, offset, step))
        if watermark_us is not None:
            for _, visit in self._visits_of(visitors):
                visit.settle(watermark_us)
        return visitors, self._count_funnels(visitors, before)

    def _count_funnels(
        self, visitors: Sequence[int], before: Mapping[int, list[int]]
    ) -> dict[int, list[int]]:
        windows = set(before)
        for window_us, visit in self._visits_of(visitors):
            if window_us not in self.funnels:
                self.funnels[window_us] = Funnel([0] * (len(self._rules.funnel) + 1))
            self.funnels[window_us].count(visit, 1)
            windows.add(window_us)
        counts = {window_us: list(self.funnels[window_us].counts) for window_us in sorted(windows)}
        return {each: found for each, found in counts.items() if found != before.get(each)}

    def _visits_of(self, visitors: Iterable[int]) -> Iterator[tuple[int, Visit]]:
        """With the window that each began in."""
        for visitor in visitors:
            for visit in self.visits.of(visitor):
                yield self._began(visit), visit

    def _began(self, visit: Visit) -> int:
        return visit.start_us - visit.start_us % self._rules.window_us

    # -- by the clock ----------------------------------------------------------------------

    def _watch(self, changes: Changes, heard: Iterable[str], now_ms: int) -> None:
        changes.hosts = watch_hosts(
            self.hosts, sorted(heard), now_ms, silent_after_ms=self._silent_after_ms
        )

    def _show(self, changes: Changes, visitors: Iterable[int], now_ms: int) -> None:
        gap_ms = self._rules.gap_us // 1000
        for visitor in visitors:
            changes.open_visits[visitor] = self.visits.of(visitor)[-1]
            if visitor not in self.shown:
                heapq.heappush(self._shown_until, (now_ms + gap_ms, visitor))
            self.shown[visitor] = now_ms
        while self._shown_until and self._shown_until[0][0] <= now_ms:
            _, visitor = heapq.heappop(self._shown_until)
            until_ms = self.shown[visitor] + gap_ms
            if until_ms > now_ms:
                heapq.heappush(self._shown_until, (until_ms, visitor))
            else:
                del self.shown[visitor]
                changes.open_visits[visitor] = None

    def show_again(self, shown: Mapping[int, int]) -> None:
        """What was shown when the state was kept."""
        self.shown = dict(shown)
        gap_ms = self._rules.gap_us // 1000
        self._shown_until = [(heard_ms + gap_ms, visitor) for visitor, heard_ms in shown.items()]
        heapq.heapify(self._shown_until)


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return to_numpy(table.column(name).combine_chunks())


def _rows(table: pa.Table) -> Iterable[tuple[int, ...]]:
    """Of a table of whole numbers."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
