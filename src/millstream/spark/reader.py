"""Reading a topic as a finished table, and what a task of any read does."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.spark.arrow import to_arrow
from millstream.spark.cluster import Cluster
from millstream.spark.fetching import OffsetRange, read_range
from millstream.spark.options import ReadOptions
from millstream.spark.planning import Planner


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, range: OffsetRange) -> None:
        super().__init__(range)


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as Arrow batches."""
    wanted = partition.value
    if wanted is None:
        # What Spark plans where there is nothing to read.
        return
    cluster = Cluster(options.client)
    for part in read_range(cluster, wanted, options.fetch):
        yield from to_arrow(
            part.batches,
            wanted.partition,
            from_offset=part.from_offset,
            upto_offset=wanted.upto_offset,
            layout=options.layout,
        )


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self._options)
        partitions = planner.partitions()
        planner.check_existence(partitions)
        starts = planner.resolve_start(partitions)
        ends = planner.resolve_end(partitions)
        return [RangePartition(each) for each in planner.split(starts, ends, partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)
