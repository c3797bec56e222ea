"""Reads a topic as a finished table: the driver's side. `tasks` has that of the workers."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.spark.options import ReadOptions
from millstream.spark.planning import Planner
from millstream.spark.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, range: OffsetRange) -> None:
        super().__init__(range)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        planner = _planner(self._options)
        partitions = planner.partitions()
        planner.check_existence(partitions)
        starts = planner.resolve_start(partitions)
        ends = planner.resolve_end(partitions)
        starts, ends = planner.checked_bounds(starts, ends, partitions)
        return [RangePartition(each) for each in planner.split(starts, ends, partitions)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from millstream.spark.tasks import read_partition

        return read_partition(self._options, partition)


def _planner(options: ReadOptions) -> Planner:
    if options.is_offline:
        from millstream.spark.offline import OfflinePlanner

        return OfflinePlanner(options)
    return Planner(options)
