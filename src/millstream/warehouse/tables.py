"""Tables of raw and parsed events, each micro-batch in them exactly once.

Tasks write Parquet files; the driver adds all of a batch by one commit that carries the
batch's number. Before it commits it asks the table for the last number, *from the same
handle*: a commit by somebody else in between makes the handle stale and ours fail; then the
table is loaded and asked again. Files of batches that were never committed are not part of
the table, and are removed with the old versions.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.lines.parser import EVENT_SCHEMA
from millstream.warehouse import EVENTS, RAW
from millstream.warehouse.delta import is_delta, load_delta, open_delta
from millstream.warehouse.files import (
    PARTITION,
    Batch,
    Table,
    TableChanged,
    WrittenFile,
    write_files,
)
from millstream.warehouse.iceberg_catalog import is_iceberg_table
from millstream.warehouse.locations import Location, as_text, location_of
from millstream.warehouse.parquet import load_parquet, open_parquet
from millstream.warehouse.snapshots import is_snapshot_table

log = logging.getLogger(__name__)

DELTA: Final = "delta"
PARQUET: Final = "parquet"
ICEBERG: Final = "iceberg"

# Rows that no streaming query has made.
BY_HAND: Final = "by hand"
QUERY_ID: Final = "sql.streaming.queryId"
_FILES: Final = "query_id string, path string, size_bytes long, date string, rows long"
_FILES_SCHEMA: Final = pa.schema(
    [
        ("query_id", pa.string()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("date", pa.string()),
        ("rows", pa.int64()),
    ]
)
_COMMITS_TRIED: Final = 10

_RAW_COLUMNS: Final = (
    *("topic", "partition", "offset", "record_time", "source", "value", "problem", "detail"),
)
# The line itself is in the other table; gauges are among the fields.
_EVENT_COLUMNS: Final = tuple(
    name for name in EVENT_SCHEMA.names if name not in ("value", "detail", "gauges")
)
TABLE_SCHEMAS: Final = {
    table: pa.schema([*map(EVENT_SCHEMA.field, columns), pa.field(PARTITION, pa.string())])
    for table, columns in ((RAW, _RAW_COLUMNS), (EVENTS, _EVENT_COLUMNS))
}


def event_rows(events: DataFrame) -> DataFrame:
    """Rows of the table of events: what was parsed; `ahead` and `late` are there, too.

    The day is the event's own, in the declared time zone. An event whose time is not believed
    is filed under the day of its record: one wrong clock creates no extra day. Days are of years
    1 to 9999, as `local_days` gives them.
    """
    at = F.when(F.col("problem").isNull(), F.col("event_time")).otherwise(F.col("record_time"))
    day, first, last = F.to_date(at), F.expr("DATE'0001-01-01'"), F.expr("DATE'9999-12-31'")
    named = F.when(day < first, first).when(day > last, last).otherwise(day)
    return (
        events.where("problem IS NULL OR problem != 'unparsable'")
        .withColumn(PARTITION, named.cast("string"))
        .select(*TABLE_SCHEMAS[EVENTS].names)
    )


def find_table(path: Location) -> Table | None:
    """The table in a directory, of whichever format; None where there is none."""
    if not isinstance(path, Path):
        return load_delta(path) if is_delta(path) else None
    if is_snapshot_table(path):
        return load_parquet(path)
    if is_iceberg_table(path):
        # Installed only where it is wanted.
        from millstream.warehouse.iceberg import find_iceberg_table

        return find_iceberg_table(path)
    return load_delta(path) if is_delta(path) else None


def open_table(path: Location, schema: pa.Schema, table_format: str) -> Table:
    """The table, made where there is none, with columns added that it does not have yet."""
    if not isinstance(path, Path):
        assert table_format == DELTA, f"a bucket has no tables of {table_format}"
        return open_delta(path, schema)
    if table_format == PARQUET:
        return open_parquet(path, schema)
    if table_format == ICEBERG:
        from millstream.warehouse.iceberg import open_iceberg

        return open_iceberg(path, schema)
    return open_delta(path, schema)


def commit_batch(
    path: Location, schema: pa.Schema, table_format: str, batch: Batch, files: list[WrittenFile]
) -> bool:
    """Add a batch to the table, even if others commit in the meantime; False if it is there."""
    for _ in range(_COMMITS_TRIED):
        try:
            return commit_files(open_table(path, schema, table_format), batch, files)
        except TableChanged as refused:
            log.info("batch %d of %s is tried again: %s", batch.number, path, refused)
    raise TableChanged(f"{path} changed {_COMMITS_TRIED} times while a batch was committed")


def commit_files(table: Table, batch: Batch, files: list[WrittenFile]) -> bool:
    """Make a batch part of the table; False where it is already.

    `table` decides: what happened since it was loaded makes the commit fail.
    """
    last = table.last_batch(batch.query_id)
    if last is not None and last >= batch.number:
        log.info("batch %d of %s was committed before", batch.number, batch.query_id)
        return False
    table.append(batch, files)
    return True


def tidy(path: Location, *, keep_days: int, today: date) -> None:
    """Join small files, forget old days, and remove what no version needs any more."""
    oldest = (today - timedelta(days=keep_days)).isoformat() if keep_days else None
    table = find_table(path)
    if table is not None:
        table.tidy(oldest_day=oldest)


def write_rows(
    rows: DataFrame, path: Location, name: str, table_format: str
) -> tuple[str, list[WrittenFile]]:
    """Write files of rows in Spark's tasks; the id of the streaming query, and the files."""
    written = rows.mapInArrow(_file_writer(path, name, table_format), _FILES).collect()
    files = [
        WrittenFile(row.path, row.size_bytes, row.date, row.rows)
        for row in written
        if row.path is not None
    ]
    return written[0].query_id if written else BY_HAND, files


def _file_writer(path: Location, name: str, table_format: str):  # type: ignore[no-untyped-def]
    place = location_of(as_text(path))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        query_id = (context.getLocalProperty(QUERY_ID) if context else None) or BY_HAND
        files = write_files(batches, place, name=name, has_day_inside=table_format != DELTA)
        # The first row has no file: a task without rows names its query, too.
        rows = [{"query_id": query_id}, *({"query_id": query_id, **asdict(f)} for f in files)]
        yield pa.RecordBatch.from_pylist(rows, schema=_FILES_SCHEMA)

    return write
