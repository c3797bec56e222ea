"""Writes a micro-batch into files in one pass: both tables, dead letters and counts.

Spark's tasks parse the lines and write the Parquet files of both tables directly. They
return little: the list of files, how many lines had which problem, and the dead letters. A
task that Spark repeats writes files that no commit names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from millstream.pipeline import dead_letters
from millstream.pipeline.local_time import local_days
from millstream.pipeline.parsing import (
    EVENT_COLUMNS,
    RECORD_COLUMNS,
    Parsing,
    line_rules,
)
from millstream.pipeline.spec import Spec
from millstream.warehouse import EVENTS, RAW
from millstream.warehouse.files import PARTITION, DayFiles, WrittenFile
from millstream.warehouse.tables import BY_HAND, DELTA, QUERY_ID, TABLE_SCHEMAS

GOOD: Final = "good"
_UNPARSABLE: Final = "unparsable"
# Gauges are for windows; a table has them among the fields.
_WRITTEN: Final = tuple(name for name in EVENT_COLUMNS if name != "gauges")

_FILE, _COUNT = "file", "count"
_REPORT: Final = (
    "kind string, query_id string, table string, path string, size_bytes long, date string, "
    "rows long, source string, value binary, problem string, detail string, topic string, "
    "partition int, offset long, record_time string, event_time string"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the tasks of a batch have written and counted."""

    query_id: str
    files: Mapping[str, list[WrittenFile]]
    # Lines by their problem; `good` has none.
    counts: Mapping[str, int]


def write_batch(
    records: DataFrame, spec: Spec, folders: Mapping[str, Path], name: str
) -> DataFrame:
    """Rows of `_REPORT`; reading them once writes the files. `folders`: of the tables wanted."""
    writer = _Writer(
        Parsing(line_rules(spec), _WRITTEN),
        {table: str(folder.absolute()) for table, folder in folders.items()},
        name,
        spec.warehouse,
        spec.timezone,
    )
    return records.select(*RECORD_COLUMNS).mapInArrow(writer.write, _REPORT)


def read_stored(reported: DataFrame) -> Stored:
    return _stored(reported.where(F.col("kind") != dead_letters.KIND).drop("value").collect())


def _stored(rows: list[Row]) -> Stored:
    files: dict[str, list[WrittenFile]] = {RAW: [], EVENTS: []}
    counts: Counter[str] = Counter()
    for row in rows:
        if row.kind == _FILE:
            file = WrittenFile(row.path, row.size_bytes, row.date, row.rows)
            files[row.table].append(file)
        else:
            counts[row.problem] += row.rows
    return Stored(rows[0].query_id if rows else BY_HAND, files, +counts)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Runs in a task; everything in it is sent there."""

    parsing: Parsing
    folders: Mapping[str, str]
    name: str
    table_format: str
    timezone: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = _report_schema()
        counts: Counter[str] = Counter()
        with ExitStack() as stack:
            files = {
                table: stack.enter_context(closing(self._files(folder)))
                for table, folder in self.folders.items()
            }
            for events in self.parsing.run(batches):
                counts.update(_counts(events))
                for table, written in files.items():
                    written.write(self._rows(events, table))
                dead = events.filter(pc.is_valid(events.column("problem")))
                if dead.num_rows:
                    yield dead_letters.letters(dead, schema, self.timezone)
        yield pa.RecordBatch.from_pylist(self._report(files, counts), schema=schema)

    def _files(self, folder: str) -> DayFiles:
        has_day_inside = self.table_format != DELTA
        return DayFiles(Path(folder), name=self.name, has_day_inside=has_day_inside)

    def _rows(self, events: pa.RecordBatch, table: str) -> pa.RecordBatch:
        times = events.column("record_time")
        if table == EVENTS:
            problem = pc.fill_null(events.column("problem"), GOOD)
            if _UNPARSABLE in pc.unique(problem).to_pylist():
                events = events.filter(pc.not_equal(problem, _UNPARSABLE))
            times = event_day_times(events)
        schema = TABLE_SCHEMAS[table]
        columns = [
            local_days(times, self.timezone) if name == PARTITION else events.column(name)
            for name in schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _report(
        self, files: Mapping[str, DayFiles], counts: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        context = TaskContext.get()
        query_id = (context.getLocalProperty(QUERY_ID) if context else None) or BY_HAND
        # A task without rows names its query, too.
        rows = [{"kind": _COUNT, "problem": GOOD, "rows": 0}]
        rows += [{"kind": _COUNT, "problem": each, "rows": n} for each, n in counts.items()]
        for table, written in files.items():
            rows += [{"kind": _FILE, "table": table, **asdict(f)} for f in written.written()]
        return [{"query_id": query_id, **row} for row in rows]


def _counts(events: pa.RecordBatch) -> dict[str, int]:
    found = pc.value_counts(pc.fill_null(events.column("problem"), GOOD))
    return {each["values"]: each["counts"] for each in found.to_pylist()}


def event_day_times(events: pa.RecordBatch) -> pa.Array:
    """An event whose time is not trusted is stored under the day of its record: one wrong
    clock creates no extra day."""
    is_good = pc.is_null(events.column("problem"))
    return pc.if_else(is_good, events.column("event_time"), events.column("record_time"))


def _report_schema() -> pa.Schema:
    text, number = pa.string(), pa.int64()
    return pa.schema(
        [
            *(("kind", text), ("query_id", text), ("table", text), ("path", text)),
            *(("size_bytes", number), ("date", text), ("rows", number)),
            *(("source", text), ("value", pa.binary()), ("problem", text), ("detail", text)),
            *(("topic", text), ("partition", pa.int32()), ("offset", number)),
            *(("record_time", text), ("event_time", text)),
        ]
    )
