"""What a task of any read does: rows of one range of offsets, as Arrow batches.

Only tasks import this; the processes that plan a read start faster without it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from millstream.spark.arrow import to_arrow
from millstream.spark.cluster import Cluster
from millstream.spark.failure import SourceError
from millstream.spark.fetching import Part, read_range
from millstream.spark.options import ReadOptions
from millstream.spark.ranges import OffsetRange
from millstream.spark.scanning import scan_range


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as Arrow batches."""
    wanted = partition.value
    if wanted is None:
        # Spark's plan if there is nothing to read.
        return
    yield from to_arrow(
        _parts(options, wanted),
        wanted.partition,
        upto_offset=wanted.upto_offset,
        layout=options.layout,
    )


def _parts(options: ReadOptions, wanted: OffsetRange) -> Iterator[Part]:
    """From files if tasks can see them; the rest from the broker."""
    if options.path is not None:
        reached = yield from scan_range(
            Path(options.path), wanted, is_committed_only=options.fetch.is_committed_only
        )
        if reached >= wanted.upto_offset:
            return
        if options.is_offline:
            raise SourceError(
                "NEEDS_BROKER",
                f"{wanted.partition} cannot be read from {options.path} beyond offset {reached}: a "
                "segment, or the outcome of its transactions, is missing or damaged. Read it "
                "through a broker, without 'offline'",
            )
        wanted = replace(wanted, from_offset=reached)
    yield from read_range(Cluster(options.client), wanted, options.fetch)
