"""A micro-batch into its files, in one pass: both tables, dead letters and counts.

Spark's tasks write the Parquet files of both tables, from the same rows, as they come. What
they hand on is small: which files there are, how many lines had which problem, and the dead
letters. A task that Spark repeats writes files that no commit names.
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
from pyspark.sql.pandas.types import to_arrow_schema

from millstream.pipeline.outputs import EVENTS, RAW
from millstream.pipeline.parsing import dead_letter_headers
from millstream.pipeline.table_files import PARTITION, DayFiles, WrittenFile
from millstream.pipeline.warehouse import (
    BY_HAND,
    DELTA,
    QUERY_ID,
    event_day,
    event_rows,
    raw_day,
    raw_rows,
)

GOOD: Final = "good"
_UNPARSABLE: Final = "unparsable"
_TIMES: Final = ("record_time", "event_time")
# What a dead letter is made of.
_LETTER: Final = ("source", "value", "problem", "detail", "topic", "partition", "offset")
_DAYS: Final = {RAW: "raw_date", EVENTS: "event_date"}

_FILE, _COUNT, _DEAD = "file", "count", "dead"
_TOLD: Final = (
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


def table_schemas(events: DataFrame) -> dict[str, pa.Schema]:
    """Columns of the tables that a batch of these events goes to."""
    rows = {RAW: raw_rows(events), EVENTS: event_rows(events)}
    return {name: to_arrow_schema(each.schema, timezone="UTC") for name, each in rows.items()}


def write_batch(
    events: DataFrame, folders: Mapping[str, Path], name: str, table_format: str
) -> DataFrame:
    """Rows of `_TOLD`; reading them once writes the files. `folders`: of the tables wanted."""
    rows = events.withColumns(
        {
            _DAYS[RAW]: raw_day(),
            _DAYS[EVENTS]: event_day(),
            # As text only where it is wanted. Not the headers themselves: a list that is null in
            # almost every row costs Spark the square of the rows on the way to Python.
            **{
                _text_of(name): F.when(F.col("problem").isNotNull(), F.col(name).cast("string"))
                for name in _TIMES
            },
        }
    )
    schemas = table_schemas(events)
    columns = {table: list(schemas[table].names) for table in folders}
    writer = _Writer(
        {table: str(folder.absolute()) for table, folder in folders.items()},
        columns,
        name,
        table_format,
    )
    return rows.mapInArrow(writer.write, _TOLD)


def read_stored(told: DataFrame) -> Stored:
    return _stored(told.where(F.col("kind") != _DEAD).drop("value").collect())


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


def dead_records(told: DataFrame) -> DataFrame:
    return told.where(F.col("kind") == _DEAD).select(
        F.col("source").cast("binary").alias("key"),
        "value",
        dead_letter_headers().alias("headers"),
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    """Runs in a task; everything in it is sent there."""

    folders: Mapping[str, str]
    columns: Mapping[str, list[str]]
    name: str
    table_format: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = _told_schema()
        counts: Counter[str] = Counter()
        with ExitStack() as stack:
            files = {
                table: stack.enter_context(closing(self._files(folder)))
                for table, folder in self.folders.items()
            }
            for batch in batches:
                counts.update(_counts(batch))
                for table, written in files.items():
                    written.write(self._rows(batch, table))
                dead = batch.filter(pc.is_valid(batch.column("problem")))
                if dead.num_rows:
                    yield _dead(dead, schema)
        yield pa.RecordBatch.from_pylist(self._told(files, counts), schema=schema)

    def _files(self, folder: str) -> DayFiles:
        has_day_inside = self.table_format != DELTA
        return DayFiles(Path(folder), name=self.name, has_day_inside=has_day_inside)

    def _rows(self, batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
        if table == EVENTS:
            problem = pc.fill_null(batch.column("problem"), GOOD)
            batch = batch.filter(pc.not_equal(problem, _UNPARSABLE))
        given = {name: _DAYS[table] if name == PARTITION else name for name in self.columns[table]}
        # With what Spark says of nulls: the table was made with that, and Iceberg compares.
        fields = [batch.schema.field(each).with_name(name) for name, each in given.items()]
        columns = [batch.column(each) for each in given.values()]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _told(
        self, files: Mapping[str, DayFiles], counts: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        context = TaskContext.get()
        query_id = (context.getLocalProperty(QUERY_ID) if context else None) or BY_HAND
        # A task without rows tells its query, too.
        told = [{"kind": _COUNT, "problem": GOOD, "rows": 0}]
        told += [{"kind": _COUNT, "problem": each, "rows": n} for each, n in counts.items()]
        for table, written in files.items():
            told += [{"kind": _FILE, "table": table, **asdict(f)} for f in written.written()]
        return [{"query_id": query_id, **row} for row in told]


def _counts(batch: pa.RecordBatch) -> dict[str, int]:
    found = pc.value_counts(pc.fill_null(batch.column("problem"), GOOD))
    return {each["values"]: each["counts"] for each in found.to_pylist()}


def _dead(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    count = batch.num_rows
    given = {
        "kind": pa.array([_DEAD] * count, pa.string()),
        **{name: batch.column(name) for name in _LETTER},
        **{name: batch.column(_text_of(name)) for name in _TIMES},
    }
    columns = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _text_of(name: str) -> str:
    return f"{name}_text"


def _told_schema() -> pa.Schema:
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
