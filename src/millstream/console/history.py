"""An hour of samples in memory: numbers by name and time, for charts and rates.

Bounded: at most `SERIES_MAX` names of `SAMPLES_MAX` samples each, about 12 MB in all. A name
that has not been seen for an hour makes room for others.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Final, Generic, TypeVar

K = TypeVar("K")

SAMPLE_SECONDS: Final = 5.0
SAMPLES_MAX: Final = 720
SERIES_MAX: Final = 2_000
# Samples between two looks for names that are gone.
_UNSEEN_EVERY: Final = 60
# What a chart draws; more points than pixels help nobody.
POINTS_MAX: Final = 600


@dataclass(frozen=True, slots=True)
class Chart:
    """Times in seconds since 1970, and for each name as many values; None where unknown."""

    times: list[float]
    series: dict[str, list[float | None]]


class History:
    def __init__(self) -> None:
        self._times: array[float] = array("d")
        self._series: dict[str, array[float]] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def names(self) -> list[str]:
        return sorted(self._series)

    def add(self, time_seconds: float, values: Mapping[str, float]) -> None:
        """Take one sample; names beyond the maximum are left out."""
        if len(self._times) == SAMPLES_MAX:
            del self._times[0]
            for series in self._series.values():
                del series[0]
        count = len(self._times)
        self._times.append(time_seconds)
        for name in values:
            if name not in self._series and len(self._series) < SERIES_MAX:
                self._series[name] = array("d", [nan] * count)
        for name, series in self._series.items():
            series.append(values.get(name, nan))
        self._added += 1
        if self._added % _UNSEEN_EVERY == 0:
            self._drop_unseen()

    def _drop_unseen(self) -> None:
        unseen = [name for name, series in self._series.items() if all(map(isnan, series))]
        for name in unseen:
            del self._series[name]

    def latest(self, name: str) -> float | None:
        series = self._series.get(name)
        if not series or isnan(series[-1]):
            return None
        return series[-1]

    def chart(self, names: Sequence[str], *, since: float = 0.0) -> Chart:
        first = next((at for at, time in enumerate(self._times) if time > since), len(self._times))
        step = max(-(-(len(self._times) - first) // POINTS_MAX), 1)
        picked = range(first, len(self._times), step)
        nothing: list[float | None] = [None] * len(picked)
        found: dict[str, list[float | None]] = {}
        for name in names:
            series = self._series.get(name)
            if series is None:
                found[name] = nothing
            else:
                found[name] = [None if isnan(series[at]) else series[at] for at in picked]
        return Chart([self._times[at] for at in picked], found)


class Rates(Generic[K]):
    """Growth per second of counters between two samples; a counter that fell began again."""

    def __init__(self) -> None:
        self._counts: Mapping[K, int] = {}
        self._time = 0.0

    def take(self, time_seconds: float, counts: Mapping[K, int]) -> dict[K, float]:
        elapsed = time_seconds - self._time
        before, self._counts, self._time = self._counts, counts, time_seconds
        if not before or elapsed <= 0:
            return {}
        return {
            name: max(count - before[name], 0) / elapsed
            for name, count in counts.items()
            if name in before
        }
