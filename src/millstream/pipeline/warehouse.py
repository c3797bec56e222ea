"""Tables of raw and parsed events in Delta's format, each micro-batch in them exactly once.

Tasks write Parquet files; the driver adds all of a batch by one commit that carries the
batch's number. Before it commits it asks the table for the last number, *from the same
handle*: a commit by somebody else in between makes the handle stale and ours fail, and Spark
tries the batch again. Files of batches that were never committed are not part of the table,
and are removed with the old versions.
"""

import json
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

log = logging.getLogger(__name__)

PARTITION: Final = "date"
_QUERY_ID: Final = "sql.streaming.queryId"
_FILES: Final = "query_id string, path string, size long, date string, rows long"
_KEEP_OLD_VERSIONS_HOURS: Final = 168


@dataclass(frozen=True, slots=True)
class Batch:
    """Which micro-batch rows belong to; `query_id` stays the same over restarts."""

    query_id: str
    number: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str
    size_bytes: int
    date: str
    rows: int


def raw_rows(events: DataFrame) -> DataFrame:
    return events.select(
        *("topic", "partition", "offset", "record_time", "source", "value", "problem", "detail"),
        F.to_date("record_time").cast("string").alias(PARTITION),
    )


def event_rows(events: DataFrame) -> DataFrame:
    """What was parsed; what is `ahead` or `late` is there too, with that flag.

    A day is the event's own, in the declared time zone. An event whose time is not believed
    is filed under the day of its record: one wrong clock makes no day of its own.
    """
    day = F.when(F.col("problem").isNull(), F.col("event_time")).otherwise(F.col("record_time"))
    return (
        events.where("problem IS NULL OR problem != 'unparsable'")
        .drop("value", "detail")
        .withColumn(PARTITION, F.to_date(day).cast("string"))
    )


def append_batch(rows: DataFrame, path: Path, batch_number: int) -> bool:
    """Add a batch to the table; False where it was there already, or has no rows."""
    schema = to_arrow_schema(rows.schema, timezone="UTC")
    written = rows.mapInArrow(_file_writer(path), _FILES).collect()
    if not written:
        return False
    batch = Batch(written[0].query_id, batch_number)
    files = [WrittenFile(row.path, row.size, row.date, row.rows) for row in written]
    return commit_files(open_table(path, schema), batch, files)


def _file_writer(path: Path):  # type: ignore[no-untyped-def]  # Spark's own type for it is private
    folder = str(path.absolute())

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        query_id = (context.getLocalProperty(_QUERY_ID) if context else None) or "by hand"
        files = write_files(batches, Path(folder))
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "query_id": query_id,
                    "path": file.path,
                    "size": file.size_bytes,
                    "date": file.date,
                    "rows": file.rows,
                }
                for file in files
            ],
            schema=pa.schema(
                [
                    ("query_id", pa.string()),
                    ("path", pa.string()),
                    ("size", pa.int64()),
                    ("date", pa.string()),
                    ("rows", pa.int64()),
                ]
            ),
        )

    return write


def write_files(batches: Iterator[pa.RecordBatch], folder: Path) -> list[WrittenFile]:
    """One Parquet file for each day; none is part of a table before it is committed."""
    writers: dict[str, tuple[str, pq.ParquetWriter]] = {}
    counts: dict[str, int] = {}
    try:
        for batch in batches:
            for day in pc.unique(batch.column(PARTITION)).to_pylist():
                rows = _in_utc(batch.filter(pc.equal(batch.column(PARTITION), day)))
                if day not in writers:
                    name = f"{PARTITION}={day}/part-{uuid.uuid4()}.parquet"
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    writer = pq.ParquetWriter(folder / name, rows.schema, compression="zstd")
                    writers[day] = (name, writer)
                writers[day][1].write_batch(rows)
                counts[day] = counts.get(day, 0) + rows.num_rows
    finally:
        for _, writer in writers.values():
            writer.close()
    return [
        WrittenFile(name, (folder / name).stat().st_size, day, counts[day])
        for day, (name, _) in writers.items()
    ]


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the day, which stands in the path, and with times as Delta wants them."""
    fields, columns = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name == PARTITION:
            continue
        if pa.types.is_timestamp(field.type):
            field = field.with_type(pa.timestamp("us", tz="UTC"))
            column = column.cast(field.type)
        fields.append(field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def open_table(path: Path, schema: pa.Schema) -> DeltaTable:
    """The table, made where there is none, with columns added that it does not have yet."""
    wanted = Schema.from_arrow(schema)
    if not DeltaTable.is_deltatable(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(str(path), wanted, mode="ignore", partition_by=[PARTITION])
    table = DeltaTable(str(path))
    known = {field.name for field in table.schema().fields}
    added = [
        Field(field.name, field.type, nullable=True)
        for field in wanted.fields
        if field.name not in known
    ]
    if added:
        table.alter.add_columns(added)
        log.info("added columns %s to %s", [field.name for field in added], path)
    return table


def commit_files(table: DeltaTable, batch: Batch, files: list[WrittenFile]) -> bool:
    """Make a batch part of the table; False where it is already.

    `table` decides: what happened since it was loaded makes the commit fail.
    """
    last = table.transaction_version(batch.query_id)
    if last is not None and last >= batch.number:
        log.info("batch %d of %s was committed before", batch.number, batch.query_id)
        return False
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            file.path,
            file.size_bytes,
            {PARTITION: file.date},
            now_ms,
            True,
            json.dumps({"numRecords": file.rows}),
        )
        for file in files
    ]
    table.create_write_transaction(
        actions,
        mode="append",
        schema=table.schema(),
        partition_by=[PARTITION],
        commit_properties=CommitProperties(
            app_transactions=[Transaction(batch.query_id, batch.number)]
        ),
    )
    return True


def tidy(path: Path, *, keep_days: int, today: date) -> None:
    """Join small files, forget old days, and remove what no version needs any more."""
    table = DeltaTable(str(path))
    if keep_days:
        oldest = today - timedelta(days=keep_days)
        table.delete(f"{PARTITION} < '{oldest.isoformat()}'")
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(retention_hours=_KEEP_OLD_VERSIONS_HOURS, dry_run=False)
