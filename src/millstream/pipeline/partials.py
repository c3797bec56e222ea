"""Partial results: what a task has counted in the lines that it read, as small Arrow tables.

`Gathering` makes them from events, without a Python step per line. The driver merges those of all
tasks and batches (`open_results`). The state that it keeps has the same form, see `kept_state`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.lines.arrays import is_valid, to_numpy
from millstream.pipeline import counters, skeletons
from millstream.pipeline.globs import glob_pattern
from millstream.pipeline.quantiles import Quantiles
from millstream.pipeline.window_totals import (
    ALL,
    HOST,
    INPUT,
    SERVICE,
    SITE,
    Gauge,
    WindowKey,
    WindowTotals,
)

WINDOWS: Final = "windows"
VISITORS: Final = "visitors"
PAGES: Final = "pages"
VISITS: Final = "visits"
STEPS: Final = "steps"
COUNTERS: Final = "counters"
SKELETONS: Final = "skeletons"

# Columns of an event that all partial results are made from, whatever the rules.
NEEDED: Final = (
    *("problem", "event_time", "status", "level", "format", "path", "visitor", "host", "service"),
    *("size_bytes", "duration_ms", "gauges", "partition", "offset", "source"),
)
ERROR_LEVELS: Final = ("emergency", "alert", "critical", "crit", "fatal", "error", "err")
VIEW_FORMATS: Final = ("combined", "common")
ERROR_STATUS: Final = 500

_NUMBER: Final = pa.int64()
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    WINDOWS: pa.schema(
        [
            *(("window_us", _NUMBER), ("output", pa.string()), ("name", pa.string())),
            *(("count", _NUMBER), ("errors", _NUMBER), ("size_bytes", _NUMBER)),
            ("duration_max", pa.float64()),
            # Values, and how many of them belong to each level of `Quantiles`.
            *(("durations", pa.list_(pa.float64())), ("levels", pa.list_(_NUMBER))),
            ("gauge_counts", pa.list_(_NUMBER)),
            ("gauge_totals", pa.list_(pa.float64())),
            ("gauge_largest", pa.list_(pa.float64())),
        ]
    ),
    # Every visitor once in a window.
    VISITORS: pa.schema([("window_us", _NUMBER), ("visitor", pa.uint64())]),
    PAGES: pa.schema([("window_us", _NUMBER), ("path", pa.string()), ("count", _NUMBER)]),
    # Views of a visitor without a silence of the gap between them.
    VISITS: pa.schema(
        [
            *(("visitor", pa.uint64()), ("start_us", _NUMBER), ("end_us", _NUMBER)),
            *(("views", _NUMBER), ("errors", _NUMBER)),
            # The step of the funnel before those of the next table; 0 in a task.
            ("reached", _NUMBER),
        ]
    ),
    # Views of pages that are steps of the funnel.
    STEPS: pa.schema(
        [
            *(("visitor", pa.uint64()), ("at_us", _NUMBER), ("partition", pa.int32())),
            *(("offset", _NUMBER), ("step", pa.int32())),
        ]
    ),
    COUNTERS: counters.SCHEMA,
    SKELETONS: skeletons.SCHEMA,
}
Tables = Mapping[str, pa.Table]
Numbers = NDArray[np.int64]
_SIZE_MAX: Final = 2**63 - 1
# No process counts further; sums of such numbers stay finite.
COUNTER_MAX: Final = 2.0**63
# Numbers up to here are grouped by a table of all of them, others by sorting.
_COUNTED_MAX: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of a pipeline file that decides what is counted."""

    window_us: int
    gap_us: int
    funnel: tuple[str, ...]
    # The column `gauges` of an event has so many gauges, and behind them so many counters.
    gauges: int
    counters: int
    # Whether messages are counted by their template.
    has_templates: bool

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns of an event that partial results are made from."""
        return (*NEEDED, "message") if self.has_templates else NEEDED


def to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(parts: Iterable[tuple[str, bytes]]) -> Tables:
    """Tables by name; those of the same name are joined, missing ones are empty."""
    found: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}
    for name, data in parts:
        found.setdefault(name, []).append(pa.ipc.open_stream(data).read_all())
    return {
        name: pa.concat_tables(tables) if tables else SCHEMAS[name].empty_table()
        for name, tables in found.items()
    }


# -- in a task -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Columns:
    """The events of a batch that count, as numbers."""

    # The number of each event's window, from that of the oldest.
    window: Numbers
    oldest_us: int
    is_error: NDArray[np.bool_]
    size_low: NDArray[np.float64]
    size_high: NDArray[np.float64]
    timed: Numbers
    durations: NDArray[np.float64]


class Gathering:
    """Adds up events, batch by batch."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._patterns = [re.compile(glob_pattern(step)) for step in rules.funnel]
        self._step_of: dict[str, int] = {}
        self._windows: dict[WindowKey, WindowTotals] = {}
        self._pages: dict[tuple[int, str], int] = {}
        # Of page views: visitor, time, partition, offset, whether it failed, step.
        self._views: list[tuple[NDArray[Any], ...]] = []
        self._samples: list[pa.Table] = []
        self._skeletons = skeletons.Skeletons()
        self.newest_us: int | None = None

    def add(self, events: pa.RecordBatch) -> None:
        """Events with the columns that the rules need; those with a problem do not count."""
        if events.column("problem").null_count < len(events):
            events = events.filter(pc.is_null(events.column("problem")))
        if not len(events):
            return
        at_us = to_numpy(events.column("event_time").cast(_NUMBER))
        newest = int(at_us.max())
        self.newest_us = newest if self.newest_us is None else max(self.newest_us, newest)
        columns = _columns(events, at_us, self._rules.window_us)
        self._add_windows(INPUT, columns, np.zeros(len(events), np.int64), [ALL])
        for output in (HOST, SERVICE):
            codes, names = _coded(events.column(output))
            self._add_windows(output, columns, codes, names)
            if output == HOST and self._rules.gauges + self._rules.counters:
                self._add_numbers(columns, codes, names, events)
        if self._rules.has_templates:
            oldest_us, window_us = columns.oldest_us, self._rules.window_us
            self._skeletons.add(
                events.column("message"),
                columns.window,
                lambda number: oldest_us + number * window_us,
            )
        is_view = _is_among(events.column("format"), VIEW_FORMATS) & is_valid(events.column("path"))
        if is_view.any():
            self._add_windows(SITE, columns, np.where(is_view, 0, -1), [ALL])
            self._add_views(events, np.flatnonzero(is_view), at_us, columns)

    def tables(self) -> dict[str, pa.Table]:
        visitors, visits, steps = self._visits()
        pages = [(window, path, count) for (window, path), count in self._pages.items()]
        return {
            WINDOWS: windows_table(self._windows),
            VISITORS: visitors,
            PAGES: rows_table(PAGES, pages),
            VISITS: visits,
            STEPS: steps,
            COUNTERS: counters.latest_samples(
                pa.concat_tables([SCHEMAS[COUNTERS].empty_table(), *self._samples])
            ),
            SKELETONS: self._skeletons.table(),
        }

    # -- windows ---------------------------------------------------------------------------

    def _add_windows(
        self, output: str, columns: _Columns, codes: Numbers, names: Sequence[str]
    ) -> None:
        """`codes`: the place in `names` that a row belongs to, -1 for none."""
        rows = np.flatnonzero(codes >= 0)
        if not len(rows):
            return
        is_all = len(rows) == len(codes)
        each = slice(None) if is_all else rows
        groups, keys = self._groups(columns, codes[each], each)
        count = len(keys)
        counts = np.bincount(groups, minlength=count)
        errors = np.bincount(groups[columns.is_error[each]], minlength=count)
        low = np.bincount(groups, columns.size_low[each], count)
        high = np.bincount(groups, columns.size_high[each], count)
        totals = [self._totals((window, output, names[code])) for window, code in keys]
        for place, total in enumerate(totals):
            size_bytes = (int(high[place]) << 32) + int(low[place])
            total.add_counts(int(counts[place]), int(errors[place]), size_bytes)
        if len(columns.timed):
            # The group of every row, to find those of rows with a duration.
            of_rows = np.full(len(codes), -1, np.int64)
            of_rows[each] = groups
            _add_durations(totals, of_rows[columns.timed], columns.durations)

    def _totals(self, key: WindowKey) -> WindowTotals:
        found = self._windows.get(key)
        if found is None:
            found = self._windows[key] = WindowTotals()
        return found

    def _add_numbers(
        self, columns: _Columns, codes: Numbers, names: Sequence[str], events: pa.RecordBatch
    ) -> None:
        """Every row has all gauges and counters, most of them null; or none has any."""
        flat = events.column("gauges").flatten()
        if flat.null_count == len(flat):
            return
        places = np.flatnonzero(is_valid(flat))
        rows, numbers = np.divmod(places, self._rules.gauges + self._rules.counters)
        values = to_numpy(flat)[places]
        is_told = codes[rows] >= 0
        is_gauge = is_told & (numbers < self._rules.gauges)
        if is_gauge.any():
            told = (rows[is_gauge], numbers[is_gauge], values[is_gauge])
            self._add_gauges(columns, codes, names, *told)
        is_counter = is_told & (numbers >= self._rules.gauges)
        is_counter &= (values >= 0) & (values < COUNTER_MAX)
        if is_counter.any():
            counter = numbers[is_counter] - self._rules.gauges
            self._add_counters(events, rows[is_counter], counter, values[is_counter])

    def _add_counters(
        self, events: pa.RecordBatch, rows: Numbers, counter: Numbers, values: NDArray[np.float64]
    ) -> None:
        names = ["host", "source", "service", "event_time", "partition", "offset"]
        told = events.select(names).take(pa.array(rows))
        arrays = {
            **{name: told.column(name) for name in ("host", "source", "partition", "offset")},
            "service": pc.fill_null(told.column("service"), ""),
            "counter": pa.array(counter, pa.int32()),
            "at_us": told.column("event_time").cast(_NUMBER),
            "value": pa.array(values),
        }
        self._samples.append(pa.Table.from_pydict(arrays, schema=SCHEMAS[COUNTERS]))

    def _add_gauges(
        self,
        columns: _Columns,
        codes: Numbers,
        names: Sequence[str],
        rows: Numbers,
        of_gauge: Numbers,
        numbers: NDArray[np.float64],
    ) -> None:
        wide = codes[rows] * self._rules.gauges + of_gauge
        groups, keys = self._groups(columns, wide, rows)
        counts = np.bincount(groups, minlength=len(keys))
        totals = np.bincount(groups, numbers, len(keys))
        largest = np.full(len(keys), -np.inf)
        np.maximum.at(largest, groups, numbers)
        for number, (start_us, code) in enumerate(keys):
            code, place = divmod(code, self._rules.gauges)
            found = self._totals((start_us, HOST, names[code])).gauges
            found += [Gauge() for _ in range(self._rules.gauges - len(found))]
            found[place].add(int(counts[number]), float(totals[number]), float(largest[number]))

    def _groups(
        self, columns: _Columns, codes: Numbers, rows: Numbers | slice
    ) -> tuple[Numbers, list[tuple[int, int]]]:
        """The group of each of these rows, and the window and code of each group."""
        if not len(codes):
            return codes, []
        width = int(codes.max()) + 1
        numbers, groups = _factorized(columns.window[rows] * width + codes)
        window_us, oldest_us = self._rules.window_us, columns.oldest_us
        keys = [(oldest_us + n // width * window_us, n % width) for n in numbers.tolist()]
        return groups, keys

    # -- views -----------------------------------------------------------------------------

    def _add_views(
        self, events: pa.RecordBatch, rows: Numbers, at_us: Numbers, columns: _Columns
    ) -> None:
        chosen = pa.array(rows)
        codes, paths = _coded(events.column("path").take(chosen))
        groups, keys = self._groups(columns, codes, rows)
        for (window, code), count in zip(keys, np.bincount(groups).tolist(), strict=True):
            page = (window, paths[code])
            self._pages[page] = self._pages.get(page, 0) + count
        visitors = events.column("visitor").take(chosen)
        is_known = is_valid(visitors)
        if not is_known.any():
            return
        rows, codes = rows[is_known], codes[is_known]
        steps = np.array([self._step(path) for path in paths], np.int32)
        self._views.append(
            (
                _visitor_numbers(visitors.drop_null()),
                at_us[rows],
                to_numpy(events.column("partition"))[rows],
                to_numpy(events.column("offset"))[rows],
                columns.is_error[rows],
                steps[codes],
            )
        )

    def _step(self, path: str) -> int:
        """The first step of the funnel that a page is, from 1; 0 for none."""
        found = self._step_of.get(path)
        if found is None:
            matching = (n for n, each in enumerate(self._patterns, 1) if each.match(path))
            found = self._step_of[path] = next(matching, 0)
        return found

    def _visits(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Visitors of windows, visits and steps."""
        if not self._views:
            return tuple(SCHEMAS[name].empty_table() for name in (VISITORS, VISITS, STEPS))
        joined = [np.concatenate(arrays) for arrays in zip(*self._views, strict=True)]
        order = np.lexsort((joined[1], joined[0]))
        visitor, at_us, partition, offset, is_error, step = (each[order] for each in joined)
        is_new = np.ones(len(visitor), np.bool_)
        is_new[1:] = visitor[1:] != visitor[:-1]
        window = at_us - at_us % self._rules.window_us
        is_first = is_new.copy()
        is_first[1:] |= window[1:] != window[:-1]
        # Times of one visitor ascend, so the difference is negative only at another's first.
        is_new[1:] |= at_us[1:] - at_us[:-1] >= self._rules.gap_us
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], len(visitor)) - 1
        errors = np.add.reduceat(is_error.astype(np.int64), starts)
        is_step = step > 1
        # Whatever a visit is merged with, only its first view of the first step can count.
        firsts = np.flatnonzero(step == 1)
        of_visit = np.cumsum(is_new)[firsts]
        is_step[firsts[np.append([True], of_visit[1:] != of_visit[:-1])[: len(firsts)]]] = True
        return (
            _table(VISITORS, window[is_first], visitor[is_first]),
            _table(
                VISITS,
                *(visitor[starts], at_us[starts], at_us[ends], ends - starts + 1, errors),
                np.zeros(len(starts), np.int64),
            ),
            _table(STEPS, *(each[is_step] for each in (visitor, at_us, partition, offset, step))),
        )


def _columns(events: pa.RecordBatch, at_us: Numbers, window_us: int) -> _Columns:
    """A window has its start and not its end: an event on the boundary is in the later one."""
    oldest_us = int(at_us.min()) // window_us * window_us
    status = pc.fill_null(events.column("status"), 0)
    sizes = to_numpy(pc.fill_null(events.column("size_bytes"), 0))
    timed = np.flatnonzero(is_valid(events.column("duration_ms")))
    return _Columns(
        window=(at_us - oldest_us) // window_us,
        oldest_us=oldest_us,
        is_error=(to_numpy(status) >= ERROR_STATUS)
        | _is_among(events.column("level"), ERROR_LEVELS),
        # Sums of doubles are exact up to 2**53, so halves of numbers are added up.
        size_low=(sizes & 0xFFFFFFFF).astype(np.float64),
        size_high=(sizes >> 32).astype(np.float64),
        timed=timed,
        durations=to_numpy(events.column("duration_ms"))[timed],
    )


def _is_among(texts: pa.StringArray, wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    codes, names = _coded(texts)
    # The last is that of code -1.
    return np.array([*(name in wanted for name in names), False])[codes]


def _coded(texts: pa.StringArray) -> tuple[Numbers, list[str]]:
    """The place of each text in a list of different ones; -1 for null."""
    coded = texts.dictionary_encode()
    codes = to_numpy(coded.indices).astype(np.int64)
    if coded.null_count:
        codes[~is_valid(coded.indices)] = -1
    return codes, coded.dictionary.to_pylist()


def _factorized(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The different numbers, none negative, and the place of each among them."""
    largest = int(numbers.max())
    if largest > _COUNTED_MAX:
        found: tuple[Numbers, Numbers] = np.unique(numbers, return_inverse=True)
        return found
    is_there = np.zeros(largest + 1, np.bool_)
    is_there[numbers] = True
    different = np.flatnonzero(is_there)
    places = np.empty(largest + 1, np.int64)
    places[different] = np.arange(len(different))
    return different, places[numbers]


def _add_durations(
    totals: Sequence[WindowTotals], groups: Numbers, durations: NDArray[np.float64]
) -> None:
    order = np.argsort(groups, kind="stable")
    groups, durations = groups[order], durations[order]
    edges = np.searchsorted(groups, np.arange(len(totals) + 1))
    for place, total in enumerate(totals):
        values = durations[edges[place] : edges[place + 1]]
        if len(values):
            total.durations.add(values)
            total.add_longest(float(values.max()))


def _visitor_numbers(visitors: pa.StringArray) -> NDArray[np.uint64]:
    """Visitors are 16 hexadecimal digits."""
    coded = visitors.dictionary_encode()
    known = np.frombuffer(bytes.fromhex("".join(coded.dictionary.to_pylist())), ">u8")
    numbers: NDArray[np.uint64] = known.astype(np.uint64)[to_numpy(coded.indices)]
    return numbers


# -- rows into tables ------------------------------------------------------------------------


def _table(name: str, *columns: NDArray[Any]) -> pa.Table:
    schema = SCHEMAS[name]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def rows_table(name: str, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    schema = SCHEMAS[name]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def windows_table(windows: Mapping[WindowKey, WindowTotals]) -> pa.Table:
    levels = [total.durations.levels() for total in windows.values()]
    sizes = [sum(map(len, each)) for each in levels]
    flat = [values for each in levels for values in each]
    durations = pa.ListArray.from_arrays(
        pa.array(np.cumsum([0, *sizes]), pa.int32()),
        pa.array(np.concatenate(flat) if flat else np.empty(0)),
    )
    rows = [
        (
            *key,
            *(total.count, total.errors, min(total.size_bytes, _SIZE_MAX), total.duration_max),
            None,
            [len(values) for values in of_levels],
            [gauge.count for gauge in total.gauges],
            [gauge.total for gauge in total.gauges],
            [gauge.largest for gauge in total.gauges],
        )
        for (key, total), of_levels in zip(windows.items(), levels, strict=True)
    ]
    table = rows_table(WINDOWS, rows)
    place = table.schema.get_field_index("durations")
    return table.set_column(place, table.schema.field(place), durations)


def add_windows(windows: dict[WindowKey, WindowTotals], table: pa.Table) -> list[WindowKey]:
    """Merge rows of such a table; the keys that it has."""
    table = table.combine_chunks()
    plain = table.drop_columns(["durations"]).to_pylist()
    lists = table.column("durations").combine_chunks()
    values = to_numpy(lists.values)
    offsets = to_numpy(lists.offsets)
    found = []
    for row, offset in zip(plain, offsets[:-1].tolist(), strict=True):
        key = (row["window_us"], row["output"], row["name"])
        total = windows.setdefault(key, WindowTotals())
        total.add_counts(row["count"], row["errors"], row["size_bytes"])
        _add_levels(total.durations, values, offset, row["levels"])
        if row["duration_max"] is not None:
            total.add_longest(row["duration_max"])
        _merge_gauges(total.gauges, row)
        found.append(key)
    return found


def _add_levels(
    durations: Quantiles, values: NDArray[np.float64], offset: int, sizes: Sequence[int]
) -> None:
    for level, size in enumerate(sizes):
        # A view would keep the values of the whole batch in memory.
        durations.add(values[offset : offset + size].copy(), level)
        offset += size


def _merge_gauges(gauges: list[Gauge], row: Mapping[str, Any]) -> None:
    told = zip(row["gauge_counts"], row["gauge_totals"], row["gauge_largest"], strict=True)
    for place, (count, total, largest) in enumerate(told):
        if place == len(gauges):
            gauges.append(Gauge())
        gauges[place].add(count, total, largest)
