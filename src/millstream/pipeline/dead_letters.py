"""Lines that do not count, and how they get to the dead-letter topic.

`lines.parser` decides which lines these are, and the reason. The task that parses a line turns
it into a row (`letters`); the driver sends the rows of a micro-batch (`send`), each exactly
once, with the reason and the origin in the headers.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.pipeline.local_time import local_text

# Of the rows that a task reports, those with this kind are dead letters.
KIND: Final = "dead"
_COLUMNS: Final = ("source", "value", "problem", "detail", "topic", "partition", "offset")
_TIMES: Final = ("record_time", "event_time")


def letters(events: pa.RecordBatch, schema: pa.Schema, timezone: str) -> pa.RecordBatch:
    """Events with a problem as rows of `schema`."""
    count = events.num_rows
    given = {
        "kind": pa.array([KIND] * count, pa.string()),
        **{name: events.column(name) for name in _COLUMNS},
        **{name: local_text(events.column(name), timezone) for name in _TIMES},
    }
    columns = [
        given[field.name] if field.name in given else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def records_of(reported: DataFrame) -> DataFrame:
    return reported.where(F.col("kind") == KIND).select(
        F.col("source").cast("binary").alias("key"), "value", _headers().alias("headers")
    )


def send(reported: DataFrame, batch_number: int, options: Mapping[str, str]) -> None:
    """Write the dead letters among the rows that a micro-batch's tasks reported."""
    (
        records_of(reported)
        .write.format("millstream")
        .options(**options)
        .option("includeHeaders", "true")
        .option("semantics", "exactly-once")
        .option("batchId", batch_number)
        .mode("append")
        .save()
    )


def _headers() -> Column:
    def header(name: str, value: Column) -> Column:
        text = F.coalesce(value.cast("string"), F.lit(""))
        return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))

    return F.array(
        header("reason", F.col("problem")),
        header("detail", F.col("detail")),
        header("topic", F.col("topic")),
        header("partition", F.col("partition")),
        header("offset", F.col("offset")),
        header("record_time", F.col("record_time")),
        header("event_time", F.col("event_time")),
    )
