"""Open results on disk: what every batch brought, and now and then all of it.

A file for each batch is written before its results are. After a crash the results are computed
again, from the last whole state and the batches since; a batch that Spark repeats finds the state
that it found the first time. The files lie with Spark's checkpoint, because each is of no use
without the other. Spark has no checkpoint in a bucket, so files there carry what it needs of one:
a driver begins with the last batch that was kept, on whatever machine it is.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.lines.known_templates import KnownTemplate
from millstream.pipeline import partials
from millstream.pipeline.anomalies import CELLS, DAYS, Anomalies, Series, SeriesKey
from millstream.pipeline.carried_checkpoint import read_checkpoint, write_checkpoint
from millstream.pipeline.open_results import Changes, Funnel, OpenResults
from millstream.pipeline.partials import Tables
from millstream.pipeline.silence import HeardHost
from millstream.pipeline.state_files import StateFiles
from millstream.pipeline.template_log import Occurrence, TemplateLog
from millstream.spark.failure import SourceError

_BATCH: Final = ".batch"
_STATE: Final = ".state"
_SCHEMA: Final = pa.schema([("table", pa.string()), ("value", pa.binary())])
_FACTS: Final = b"millstream"
_CHECKPOINT: Final = "checkpoint"
# All of it is written when the batches since then have this much, or as much as it had.
_BATCHES_BYTES: Final = 4 << 20
_BATCHES_MAX: Final = 200

_HOSTS: Final = "hosts"
_SHOWN: Final = "shown"
_FUNNELS: Final = "funnels"
_TEMPLATES: Final = "templates"
_TEMPLATES_SCHEMA: Final = pa.schema(
    [
        *(("number", pa.int64()), ("text", pa.string())),
        # Its first two tokens when it was found.
        *(("first", pa.string()), ("second", pa.string()), ("sample", pa.string())),
        *(("first_us", pa.int64()), ("last_us", pa.int64()), ("seen", pa.int64())),
    ]
)
_TEMPLATE_COUNTS: Final = "template_counts"
_TEMPLATE_COUNTS_SCHEMA: Final = pa.schema(
    [("window_us", pa.int64()), ("number", pa.int64()), ("count", pa.int64())]
)
_SERIES: Final = "series"
_SERIES_SCHEMA: Final = pa.schema(
    [
        *(("output", pa.string()), ("name", pa.string()), ("measure", pa.string())),
        *(("recent", pa.list_(pa.float64())), ("cells", pa.list_(pa.float64()))),
        *(("heard_us", pa.int64()), ("is_open", pa.bool_()), ("turning", pa.int64())),
        *(("turning_us", pa.int64()), ("since_us", pa.int64()), ("furthest", pa.float64())),
    ]
)


class StateMissing(Exception):
    """Files of the state are gone; the text says which, and what to do."""


@dataclass(frozen=True, slots=True)
class BatchParts:
    """Partial results of a micro-batch."""

    # Tables by name, as Arrow streams; a name may occur more than once.
    tables: Sequence[tuple[str, bytes]]
    newest_us: int | None
    # The clock of the batch; None if it has none.
    now_ms: int | None


class KeptState:
    """The open results of one query, in memory and on disk."""

    def __init__(
        self, files: StateFiles, make: Callable[[], OpenResults], checkpoint: Path | None = None
    ) -> None:
        """`checkpoint`: of Spark, if it does not lie with the files."""
        self._files = files
        self._make = make
        self._checkpoint = checkpoint
        self.results = make()
        # The batch that `results` has seen last; None before anything was loaded.
        self._number: int | None = None
        self._since: list[int] = []
        self._state_bytes = 0

    def begin(self) -> None:
        """Before Spark looks at its checkpoint: it is to repeat the last batch that was kept."""
        if self._checkpoint is None:
            return
        last = max(self._numbers(_BATCH), default=None)
        carried = {} if last is None else self._read(last, _BATCH).facts[_CHECKPOINT]
        write_checkpoint(self._checkpoint, carried)

    def add(self, number: int, parts: BatchParts) -> Changes:
        """Keep a batch, and merge it. One that Spark repeats is merged as the first time.

        Its results may differ now: settings may have been edited since. Its plan may not.
        """
        if self._number != number - 1:
            self._load(number - 1)
        facts: dict[str, Any] = {"newest_us": parts.newest_us, "now_ms": parts.now_ms}
        if self._checkpoint is not None:
            facts[_CHECKPOINT] = read_checkpoint(self._checkpoint, number)
        mine = _encode(parts.tables, facts)
        data = self._files.keep(_name(number, _BATCH), mine)
        kept = _Kept(parts.tables, facts, len(mine)) if data == mine else _decode(data)
        if any(kept.facts.get(name) != facts.get(name) for name in (_CHECKPOINT, "now_ms")):
            raise SourceError(
                "STATE_TAKEN",
                f"another driver runs this pipeline: {self._files.path(_name(number, _BATCH))} is "
                "of a batch with other offsets. Leave one of them running",
            )
        self._since.append(kept.size_bytes)
        self._number = number
        return self._merge(kept)

    def _merge(self, kept: "_Kept") -> Changes:
        tables = partials.from_bytes(kept.tables)
        return self.results.add(tables, kept.facts["newest_us"], kept.facts["now_ms"])

    def tidy(self) -> None:
        """Write the whole state if that is due, and remove what is not needed any more."""
        assert self._number is not None, "no batch was added"
        is_due = sum(self._since) > max(_BATCHES_BYTES, self._state_bytes)
        if not is_due and len(self._since) < _BATCHES_MAX:
            return
        # Not one of this batch: an attempt that ended before Spark's commit may have left it.
        before = self._newest_state(self._number - 1)
        tables = [(name, partials.to_bytes(each)) for name, each in _tables(self.results).items()]
        facts = {
            "newest_us": self.results.newest_us,
            "dropped": self.results.dropped,
            "next_template": self.results.templates.known.next_number,
            "template_windows": self.results.templates.closed_windows,
        }
        data = _encode(tables, facts)
        self._files.write(_name(self._number, _STATE), data)
        self._state_bytes = len(data)
        self._since = []
        # Spark may repeat this batch, which then needs the state before it.
        for name in self._files.names():
            if _is_older(name, before or 0):
                self._files.remove(name)

    def _load(self, number: int) -> None:
        """The state after that batch."""
        self.results = self._make()
        self._since = []
        first = 0
        state = self._newest_state(number)
        if state is not None:
            kept = self._read(state, _STATE)
            self._state_bytes = kept.size_bytes
            restore(self.results, kept.tables, kept.facts)
            first = state + 1
        for each in range(first, number + 1):
            kept = self._read(each, _BATCH)
            self._merge(kept)
            self._since.append(kept.size_bytes)
        self._number = number

    def _read(self, number: int, suffix: str) -> "_Kept":
        data = self._files.read(_name(number, suffix))
        if data is None:
            raise StateMissing(
                f"{self._files.path(_name(number, suffix))} is missing, and without it no result "
                "after it is right. Restore the folder, or start over with another home"
            )
        return _decode(data)

    def _newest_state(self, number: int) -> int | None:
        return max((each for each in self._numbers(_STATE) if each <= number), default=None)

    def _numbers(self, suffix: str) -> list[int]:
        names = self._files.names()
        return [int(name.removesuffix(suffix)) for name in names if name.endswith(suffix)]


def _name(number: int, suffix: str) -> str:
    return f"{number:012}{suffix}"


def _is_older(name: str, number: int) -> bool:
    """Of a file of batches or states, also one that was not finished."""
    digits = name.split(".")[0]
    return digits.isdigit() and int(digits) < number


@dataclass(frozen=True, slots=True)
class _Kept:
    """A file: tables by name, as Arrow streams, and what else it says."""

    tables: Sequence[tuple[str, bytes]]
    facts: dict[str, Any]
    size_bytes: int


def _encode(tables: Iterable[tuple[str, bytes]], facts: dict[str, Any]) -> bytes:
    rows = pa.Table.from_pylist(
        [{"table": name, "value": value} for name, value in tables],
        schema=_SCHEMA.with_metadata({_FACTS: json.dumps(facts).encode()}),
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, rows.schema, options=options) as out:
        out.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decode(data: bytes) -> _Kept:
    rows = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    facts: dict[str, Any] = json.loads(rows.schema.metadata[_FACTS])
    return _Kept([(row["table"], row["value"]) for row in rows.to_pylist()], facts, len(data))


# -- results and tables ----------------------------------------------------------------------


def _tables(results: OpenResults) -> dict[str, pa.Table]:
    """In the form of a batch that would bring all of it at once, and what batches do not have."""
    visits = [
        (visitor, each.start_us, each.end_us, each.views, each.errors, each.reached)
        for visitor, of_visitor in results.visits.items()
        for each in of_visitor
    ]
    steps = [
        (visitor, *step)
        for visitor, of_visitor in results.visits.items()
        for each in of_visitor
        for step in each.steps
    ]
    pages = [
        (window_us, path, count)
        for window_us, site in results.sites.items()
        for path, count in site.pages.items()
    ]
    visitors = [
        pa.Table.from_pydict(
            {"window_us": [window_us] * len(site.visitors), "visitor": site.visitors},
            schema=partials.SCHEMAS[partials.VISITORS],
        )
        for window_us, site in results.sites.items()
    ]
    funnels = results.funnels.items()
    return {
        partials.WINDOWS: partials.windows_table(results.windows),
        partials.VISITORS: pa.concat_tables(
            [partials.SCHEMAS[partials.VISITORS].empty_table(), *visitors]
        ),
        partials.PAGES: partials.rows_table(partials.PAGES, pages),
        partials.VISITS: partials.rows_table(partials.VISITS, visits),
        partials.STEPS: partials.rows_table(partials.STEPS, steps),
        partials.COUNTERS: partials.rows_table(partials.COUNTERS, list(results.counters.samples())),
        _HOSTS: pa.table(
            {
                "host": pa.array(results.hosts, pa.string()),
                "last_ms": pa.array([each.last_ms for each in results.hosts.values()], pa.int64()),
                "is_silent": pa.array(
                    [each.is_silent for each in results.hosts.values()], pa.bool_()
                ),
            }
        ),
        _SHOWN: pa.table(
            {
                "visitor": pa.array(results.shown, pa.uint64()),
                "heard_ms": pa.array(results.shown.values(), pa.int64()),
            }
        ),
        _FUNNELS: pa.table(
            {
                "window_us": pa.array([window_us for window_us, _ in funnels], pa.int64()),
                "counts": pa.array([each.counts for _, each in funnels], pa.list_(pa.int64())),
                "going_on": pa.array([each.going_on for _, each in funnels], pa.int64()),
            }
        ),
        _SERIES: _series_table(results.anomalies),
        **_template_tables(results.templates),
    }


def _template_tables(log: TemplateLog) -> dict[str, pa.Table]:
    rows: list[tuple[object, ...]] = []
    for number, known in log.occurrences.items():
        template = log.known.templates[number]
        _, first, second = template.leaf
        said = (known.sample, known.first_us, known.last_us, known.seen)
        rows.append((number, template.text, first.decode(), second.decode(), *said))
    counts = [
        (window_us, number, count)
        for window_us, of_window in log.windows.items()
        for number, count in of_window.items()
    ]
    return {
        _TEMPLATES: _rows_table(_TEMPLATES_SCHEMA, rows),
        _TEMPLATE_COUNTS: _rows_table(_TEMPLATE_COUNTS_SCHEMA, counts),
    }


def _rows_table(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(each, of.type) for each, of in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _restore_templates(log: TemplateLog, tables: Tables, facts: dict[str, Any]) -> None:
    # State of before there were templates has none.
    if _TEMPLATES not in tables:
        return
    known = []
    for row in tables[_TEMPLATES].to_pylist():
        tokens = row["text"].encode().split(b" ")
        leaf = (len(tokens), row["first"].encode(), row["second"].encode())
        known.append(KnownTemplate(row["number"], tokens, leaf))
        log.occurrences[row["number"]] = Occurrence(
            row["sample"], row["first_us"], row["last_us"], row["seen"]
        )
    log.known.restore(known, facts["next_template"])
    log.closed_windows = facts["template_windows"]
    for row in tables[_TEMPLATE_COUNTS].to_pylist():
        log.windows.setdefault(row["window_us"], {})[row["number"]] = row["count"]


def _series_table(anomalies: Anomalies | None) -> pa.Table:
    known = {} if anomalies is None else anomalies.series
    cells = [None if each.cells is None else each.cells.ravel() for each in known.values()]
    names = _SERIES_SCHEMA.names[5:]
    columns: list[Any] = [
        *([key[place] for key in known] for place in range(3)),
        [each.recent for each in known.values()],
        cells,
        *([getattr(each, name) for each in known.values()] for name in names),
    ]
    return pa.Table.from_arrays(
        [pa.array(each, of.type) for each, of in zip(columns, _SERIES_SCHEMA, strict=True)],
        schema=_SERIES_SCHEMA,
    )


def _read_series(table: pa.Table) -> dict[SeriesKey, Series]:
    """In the order in which they were found, which says who comes first when there are too many."""
    found: dict[SeriesKey, Series] = {}
    for row in table.to_pylist():
        key = (row.pop("output"), row.pop("name"), row.pop("measure"))
        if row["cells"] is not None:
            row["cells"] = np.array(row["cells"], np.float64).reshape(CELLS, DAYS)
        found[key] = Series(**row)
    return found


def restore(
    results: OpenResults, parts: Iterable[tuple[str, bytes]], facts: dict[str, Any]
) -> None:
    tables: Tables = partials.from_bytes(parts)
    results.add(tables, None, None)
    # Ended visits count in a funnel, too.
    results.funnels = {
        row["window_us"]: Funnel(row["counts"], row["going_on"])
        for row in tables[_FUNNELS].to_pylist()
    }
    results.hosts = {
        row["host"]: HeardHost(row["last_ms"], row["is_silent"])
        for row in tables[_HOSTS].to_pylist()
    }
    if results.anomalies is not None and _SERIES in tables:
        results.anomalies.series = _read_series(tables[_SERIES])
    _restore_templates(results.templates, tables, facts)
    shown = tables[_SHOWN].to_pylist()
    results.show_again({row["visitor"]: row["heard_ms"] for row in shown})
    results.newest_us, results.dropped = facts["newest_us"], facts["dropped"]
