"""Reads a topic as a finished table, and what a task of any read does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.spark.arrow import to_arrow
from millstream.spark.cluster import Cluster
from millstream.spark.failure import SourceError
from millstream.spark.fetching import OffsetRange, Part, read_range
from millstream.spark.offline import OfflinePlanner
from millstream.spark.options import ReadOptions
from millstream.spark.planning import Planner
from millstream.spark.scanning import scan_range


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, range: OffsetRange) -> None:
        super().__init__(range)


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


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        is_offline = self._options.is_offline
        planner = OfflinePlanner(self._options) if is_offline else Planner(self._options)
        partitions = planner.partitions()
        planner.check_existence(partitions)
        starts = planner.resolve_start(partitions)
        ends = planner.resolve_end(partitions)
        starts, ends = planner.checked_bounds(starts, ends, partitions)
        return [RangePartition(each) for each in planner.split(starts, ends, partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)
