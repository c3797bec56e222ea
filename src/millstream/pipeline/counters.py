"""Counters of hosts: by how much numbers that only grow have grown in a window.

A series is one counter of one host, source and service: two processes of a host that count under
the same name do not mix. Of each second the last sample counts, which bounds what is kept. The
growth from a sample to the next belongs to the window of the next one; a smaller number than before
means that the counter began again at 0. Samples are put in order by their event time, so any
division of the lines into tasks and batches gives the same growth.

Knows samples and windows. Does not know lines, or how results are written.
"""

import logging
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.lines.arrays import to_numpy

log = logging.getLogger(__name__)

SCHEMA: Final = pa.schema(
    [
        # A service is empty where a line names none.
        *(("host", pa.string()), ("source", pa.string()), ("service", pa.string())),
        # Its place among the counters of the pipeline file.
        ("counter", pa.int32()),
        *(("at_us", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())),
        ("value", pa.float64()),
    ]
)
SECOND_US: Final = 1_000_000
# A series that is silent for longer begins anew.
FORGOTTEN_AFTER_US: Final = 24 * 3600 * SECOND_US
# Each keeps some 150 bytes for every sample of open windows.
SERIES_MAX: Final = 20_000


class Sample(NamedTuple):
    # In order: by time, then as they are in the topic.
    at_us: int
    partition: int
    offset: int
    value: float


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one counter of a host in a window."""

    increase: float
    # By the time between the samples, which may reach back behind the window.
    per_second: float


def latest_samples(samples: pa.Table) -> pa.Table:
    """The last of each series in each second."""
    if not len(samples):
        return samples
    names = [_codes(samples[name]) for name in ("host", "source", "service")]
    counter, at_us, partition, offset, value = (
        to_numpy(samples[name].combine_chunks())
        for name in ("counter", "at_us", "partition", "offset", "value")
    )
    order = np.lexsort((value, offset, partition, at_us, counter, *names))
    groups = [each[order] for each in (at_us // SECOND_US, counter, *names)]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = np.any([each[1:] != each[:-1] for each in groups], axis=0)
    return samples.take(pa.array(order[is_last]))


def _codes(texts: pa.ChunkedArray) -> NDArray[np.int32]:
    return to_numpy(texts.combine_chunks().dictionary_encode().indices)


# Source, service, counter.
_SeriesName = tuple[str, str, int]
# By their second.
_Samples = dict[int, Sample]


class CounterLog:
    """The samples of windows that are open, and of each series the last before them."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._of: dict[str, dict[_SeriesName, _Samples]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, samples: pa.Table, *, closed_us: int | None) -> set[tuple[int, str]]:
        """Windows and hosts whose growth may have changed.

        `closed_us`: the start of the last window that is closed; its samples and older ones are
        too late.
        """
        if closed_us is not None:
            first_us = closed_us + self._window_us
            samples = samples.filter(pc.greater_equal(samples["at_us"], first_us))
        changed: set[tuple[int, str]] = set()
        columns = (samples[name].to_pylist() for name in SCHEMA.names)
        for host, source, service, counter, *sample in zip(*columns, strict=True):
            series = self._series(host, (source, service, counter))
            if series is None:
                continue
            new = Sample(*sample)
            second = new.at_us // SECOND_US
            known = series.get(second)
            if known is None or new > known:
                series[second] = new
                changed.add((self._start(new.at_us), host))
                # The growth up to the next sample is another one now.
                after = min((each for each in series if each > second), default=None)
                if after is not None:
                    changed.add((self._start(series[after].at_us), host))
        return changed

    def _series(self, host: str, name: _SeriesName) -> _Samples | None:
        of_host = self._of.setdefault(host, {})
        found = of_host.get(name)
        if found is None and self._count < SERIES_MAX:
            found = of_host[name] = {}
            self._count += 1
            if self._count == SERIES_MAX:
                log.warning("there are %d series of counters; others do not count", SERIES_MAX)
        return found

    def _start(self, at_us: int) -> int:
        return at_us - at_us % self._window_us

    def growth(self, window_us: int, host: str) -> dict[int, Growth]:
        """By counter; one that has no two samples in a row is not there."""
        parts: dict[int, list[Growth]] = {}
        for (_, _, counter), samples in self._of.get(host, {}).items():
            found = _growth(sorted(samples.values()), window_us, window_us + self._window_us)
            if found is not None:
                parts.setdefault(counter, []).append(found)
        # Not in the order in which series were seen.
        return {
            counter: Growth(
                math.fsum(each.increase for each in of_counter),
                math.fsum(each.per_second for each in of_counter),
            )
            for counter, of_counter in sorted(parts.items())
        }

    def close(self, closed_us: int) -> None:
        """Forget samples of windows up to the one that starts then, but for the last of each."""
        end_us = closed_us + self._window_us
        for host, of_host in list(self._of.items()):
            for name, samples in list(of_host.items()):
                closed = [second for second, each in samples.items() if each.at_us < end_us]
                last = max(closed, default=None)
                is_gone = len(closed) == len(samples) and (
                    last is None or samples[last].at_us < end_us - FORGOTTEN_AFTER_US
                )
                if is_gone:
                    del of_host[name]
                    self._count -= 1
                    continue
                for second in closed:
                    if second != last:
                        del samples[second]
            if not of_host:
                del self._of[host]

    def samples(self) -> Iterator[tuple[object, ...]]:
        """All of them, as rows of `SCHEMA`."""
        for host, of_host in self._of.items():
            for name, of_series in of_host.items():
                for sample in of_series.values():
                    yield (host, *name, *sample)


def _growth(samples: list[Sample], start_us: int, end_us: int) -> Growth | None:
    """Of the samples of a series in order, up to those in this window."""
    first = max(1, bisect_left(samples, (start_us,)))
    end = bisect_left(samples, (end_us,))
    steps = [
        (before, sample)
        for before, sample in zip(samples[first - 1 : end], samples[first:end], strict=False)
        if sample.at_us - before.at_us <= FORGOTTEN_AFTER_US
    ]
    if not steps:
        return None
    increase = math.fsum(
        after.value - before.value if after.value >= before.value else after.value
        for before, after in steps
    )
    elapsed_us = sum(after.at_us - before.at_us for before, after in steps)
    return Growth(increase, increase * SECOND_US / elapsed_us)
