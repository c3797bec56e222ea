"""Which lines of a sample a pipeline would read: by the same parser that it reads with.

Whether a time is `ahead` or `late` is not asked: files at hand may be of any age.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from millstream.pipeline.parsing import parse_events
from millstream.pipeline.spec import Spec

_SHOWN_BYTES = 160


@dataclass(frozen=True, slots=True)
class Sample:
    """Lines of one source, and the time that dates without a year are near to."""

    source: str
    time_ms: int
    lines: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Failed:
    # From 1.
    line: int
    detail: str
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    source: str
    lines: int
    read: int
    # How many of the lines that were read are of each format.
    formats: dict[str, int]
    # The first that were not.
    failed: list[Failed]


def check_samples(
    spark: SparkSession, spec: Spec, samples: Sequence[Sample], *, failed_shown: int
) -> list[Checked]:
    if not any(sample.lines for sample in samples):
        return [Checked(sample.source, 0, 0, {}, []) for sample in samples]
    events = parse_events(_records(spark, samples), spec).persist()
    try:
        is_read = F.col("detail").isNull()
        counts = events.groupBy("source", "format", is_read.alias("is_read")).count().collect()
        # As bytes: what is not UTF-8 cannot be a text of Spark's.
        begins = F.coalesce(F.substring("value", 1, _SHOWN_BYTES), F.lit(b""))
        missed = F.struct("offset", "detail", begins.alias("begins"))
        first = F.slice(F.sort_array(F.collect_list(missed)), 1, failed_shown)
        rows = events.where(~is_read).groupBy("source").agg(first.alias("first")).collect()
    finally:
        events.unpersist()
    failed = {row.source: [_failed(each) for each in row["first"]] for row in rows}
    return [
        _checked(sample, [row for row in counts if row.source == sample.source], failed)
        for sample in samples
    ]


def _failed(row: Row) -> Failed:
    return Failed(row.offset + 1, row.detail, bytes(row.begins).decode(errors="replace"))


def _checked(sample: Sample, counts: list[Row], failed: dict[str, list[Failed]]) -> Checked:
    formats = {row["format"]: row["count"] for row in counts if row.is_read}
    ordered = dict(sorted(formats.items(), key=lambda item: -item[1]))
    return Checked(
        source=sample.source,
        lines=len(sample.lines),
        read=sum(formats.values()),
        formats=ordered,
        failed=failed.get(sample.source, []),
    )


def _records(spark: SparkSession, samples: Sequence[Sample]) -> DataFrame:
    """As they would come from a topic."""
    tables = []
    for sample in samples:
        # Spark was seen to leave out what follows an empty part of a table.
        if not sample.lines:
            continue
        count = len(sample.lines)
        tables.append(
            pa.table(
                {
                    "key": pa.array([sample.source.encode()] * count, pa.binary()),
                    "value": pa.array(sample.lines, pa.binary()),
                    "topic": pa.array(["sample"] * count, pa.string()),
                    "partition": pa.array([0] * count, pa.int32()),
                    "offset": pa.array(range(count), pa.int64()),
                    "timestamp": pa.array(
                        [sample.time_ms] * count, pa.timestamp("ms", tz="UTC")
                    ).cast(pa.timestamp("us", tz="UTC")),
                }
            )
        )
    return spark.createDataFrame(pa.concat_tables(tables).combine_chunks())
