"""Anomalies: values of closed windows that are far from what the same series had before.

A series is one measure of the input, a host or a service. A value is compared with the last
windows and, once there are enough days, with the same time of day on other days; it is unusual if
it is outside both ranges. A range is the median of the older values, and as many spreads on either
side as the sensitivity says; the spread is the median absolute deviation, scaled to a standard
deviation, and never below the noise that counting itself has. Unusual values enter the history too:
a new level becomes usual after half an hour of one-minute windows.

An episode begins with the second unusual window in a row and ends with the second usual one. The
same windows in the same order give the same alerts. Each series keeps at most about 6 kB.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from millstream.lines import zones
from millstream.pipeline.counters import Growth
from millstream.pipeline.window_totals import INPUT, SERVICE, SITE, WindowKey, WindowTotals

log = logging.getLogger(__name__)

ANOMALY: Final = "anomaly"
USUAL: Final = "usual"

PER_SECOND: Final = "per_second"
ERROR_SHARE: Final = "error_share"
P95: Final = "duration_ms_p95"

SERIES_MAX: Final = 4_000
RECENT_MAX: Final = 60
RECENT_MIN: Final = 30
# Of seven days, one value for every quarter of an hour.
CELLS: Final = 96
DAYS: Final = 7
_DAYS_MIN: Final = 3
_SEASONAL_MIN: Final = 6
_DAY_US: Final = 86_400_000_000
_CELL_US: Final = _DAY_US // CELLS
_FORGOTTEN_AFTER_US: Final = 3 * _DAY_US
# Shares and percentiles of fewer lines say little.
_LINES_MIN: Final = 20
# As many windows in a row begin or end an episode.
_IN_A_ROW: Final = 2
# The least spread, as a share of the median.
_SPREAD_SHARE: Final = 0.05
_SHARE_SPREAD: Final = 0.01
_LATENCY_SPREAD_MS: Final = 1.0
# From the median absolute deviation to the standard deviation of a normal distribution.
_TO_DEVIATION: Final = 1.4826

Values = NDArray[np.float64]
# Output, name, measure.
SeriesKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class AnomalyRules:
    # How many spreads a value may be away from the median.
    sensitivity: float
    window_us: int
    # Of times of day.
    timezone: str
    gauges: tuple[str, ...]
    counters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A value of a series in a window."""

    key: SeriesKey
    value: float
    # Lines that it is made from.
    count: int


@dataclass(frozen=True, slots=True)
class Range:
    expected: float
    low: float
    high: float

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class AnomalyAlert:
    kind: str
    key: SeriesKey
    since_us: int
    value: float
    usual: Range
    text: str


@dataclass(slots=True)
class Series:
    """What is kept of one: its history, and the episode that it may be in."""

    recent: list[float] = field(default_factory=list)
    # By quarter of an hour and day; NaN where there is none. None before the first.
    cells: Values | None = None
    # The last window with lines of it.
    heard_us: int = 0
    is_open: bool = False
    # Windows in a row that speak for the other state, and the first of them.
    turning: int = 0
    turning_us: int = 0
    # The start of the episode, and its value that is furthest from the usual.
    since_us: int = 0
    furthest: float = 0.0


def measured(
    key: WindowKey, totals: WindowTotals, grown: Mapping[int, Growth], rules: AnomalyRules
) -> Iterator[Measured]:
    """What a closed window says; of the site nothing that the input does not say."""
    _, output, name = key
    if output == SITE:
        return
    count = totals.count
    seconds = rules.window_us / 1_000_000
    yield Measured((output, name, PER_SECOND), count / seconds, count)
    if count >= _LINES_MIN:
        yield Measured((output, name, ERROR_SHARE), totals.errors / count, count)
    if len(totals.durations) >= _LINES_MIN:
        [value] = totals.durations.at((0.95,))
        yield Measured((output, name, P95), value, len(totals.durations))
    for gauge_name, gauge in zip(rules.gauges, totals.gauges, strict=False):
        if gauge.count and math.isfinite(mean := gauge.total / gauge.count):
            yield Measured((output, name, gauge_name), mean, gauge.count)
    for place, growth in grown.items():
        yield Measured((output, name, rules.counters[place]), growth.per_second, count)


class Anomalies:
    """The series of a pipeline."""

    def __init__(self, rules: AnomalyRules) -> None:
        self._rules = rules
        self.series: dict[SeriesKey, Series] = {}

    def add(self, start_us: int, values: Iterable[Measured]) -> list[AnomalyAlert]:
        """All values of the windows that start then; starts come in order."""
        told = {each.key: each for each in values}
        local_us = int(zones.local_of(np.array([start_us]), self._rules.timezone)[0])
        alerts = []
        for each in sorted([*told.values(), *self._missing(told)], key=lambda each: each.key):
            series = self._find(each.key)
            if series is None:
                continue
            if each.key in told:
                series.heard_us = start_us
            usual = usual_range(series, each, local_us, self._rules)
            if usual is not None:
                alert = _turn(series, each, start_us, usual, self._rules)
                alerts += [] if alert is None else [alert]
            _remember(series, each.value, local_us)
        self._forget(start_us)
        return alerts

    def _missing(self, told: Mapping[SeriesKey, Measured]) -> Iterator[Measured]:
        """Services that have no lines, in a window that has lines. Hosts have their own alert."""
        if any(output == INPUT for output, _, _ in told):
            for key in self.series:
                if key[0] == SERVICE and key[2] == PER_SECOND and key not in told:
                    yield Measured(key, 0.0, 0)

    def _find(self, key: SeriesKey) -> Series | None:
        found = self.series.get(key)
        if found is None and len(self.series) < SERIES_MAX:
            found = self.series[key] = Series()
            if len(self.series) == SERIES_MAX:
                log.warning("%d series are watched for anomalies; others are not", SERIES_MAX)
        return found

    def _forget(self, start_us: int) -> None:
        before_us = start_us - _FORGOTTEN_AFTER_US
        for key in [key for key, each in self.series.items() if each.heard_us < before_us]:
            del self.series[key]


# -- one series ------------------------------------------------------------------------------


def usual_range(series: Series, new: Measured, local_us: int, rules: AnomalyRules) -> Range | None:
    """What contains the value if anything does; None while too little is known."""
    if len(series.recent) < RECENT_MIN:
        return None
    recent = _range(np.array(series.recent), new, rules)
    seasonal = _same_time(series, local_us)
    if seasonal is None or recent.has(new.value):
        return recent
    return _range(seasonal, new, rules)


def _same_time(series: Series, local_us: int) -> Values | None:
    """Values of other days at about this time; None if those are too few."""
    if series.cells is None:
        return None
    cell = local_us % _DAY_US // _CELL_US
    near = series.cells[[(cell - 1) % CELLS, cell, (cell + 1) % CELLS]]
    is_there = ~np.isnan(near)
    is_there[:, local_us // _DAY_US % DAYS] = False
    if is_there.any(axis=0).sum() < _DAYS_MIN or is_there.sum() < _SEASONAL_MIN:
        return None
    found: Values = near[is_there]
    return found


def _range(values: Values, new: Measured, rules: AnomalyRules) -> Range:
    median = float(np.median(values))
    deviation = float(np.median(np.abs(values - median)))
    spread = max(_TO_DEVIATION * deviation, _SPREAD_SHARE * abs(median), _noise(new, median, rules))
    low, high = median - rules.sensitivity * spread, median + rules.sensitivity * spread
    return Range(median, max(low, 0.0) if values.min() >= 0 else low, high)


def _noise(new: Measured, median: float, rules: AnomalyRules) -> float:
    """The spread that chance alone gives to counts."""
    match new.key[2]:
        case measure if measure == PER_SECOND:
            seconds = rules.window_us / 1_000_000
            return math.sqrt(max(median, 1 / seconds) / seconds)
        case measure if measure == ERROR_SHARE:
            return max(_SHARE_SPREAD, math.sqrt(max(median, 1 / new.count) / new.count))
        case measure if measure == P95:
            return _LATENCY_SPREAD_MS
    return 0.0


def _turn(
    series: Series, new: Measured, start_us: int, usual: Range, rules: AnomalyRules
) -> AnomalyAlert | None:
    """Begin or end an episode if this window is the last that it takes."""
    is_usual = usual.has(new.value)
    if series.is_open and abs(new.value - usual.expected) > abs(series.furthest - usual.expected):
        series.furthest = new.value
    if is_usual != series.is_open:
        series.turning = 0
        return None
    if not series.turning:
        series.turning_us = start_us
    series.turning += 1
    if series.turning < _IN_A_ROW:
        return None
    series.turning = 0
    series.is_open = not is_usual
    since_us, furthest = series.turning_us, series.furthest
    if is_usual:
        windows = (since_us - series.since_us) // rules.window_us
        text = f"{_of(new.value, usual)}; unusual for {windows} windows, up to {furthest:.4g}"
        return AnomalyAlert(USUAL, new.key, since_us, new.value, usual, text)
    series.since_us, series.furthest = since_us, new.value
    return AnomalyAlert(ANOMALY, new.key, since_us, new.value, usual, _of(new.value, usual))


def _of(value: float, usual: Range) -> str:
    return f"{value:.4g}, usually {usual.expected:.4g} ({usual.low:.4g} to {usual.high:.4g})"


def _remember(series: Series, value: float, local_us: int) -> None:
    series.recent.append(value)
    del series.recent[:-RECENT_MAX]
    if series.cells is None:
        series.cells = np.full((CELLS, DAYS), np.nan)
    series.cells[local_us % _DAY_US // _CELL_US, local_us // _DAY_US % DAYS] = value
