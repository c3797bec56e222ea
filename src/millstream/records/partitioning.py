"""The partition of a key, as Kafka's own producer chooses it."""

from array import array

from millstream.records.row_columns import StringColumn
from millstream.records.rows import IMPLEMENTATION


def partition_of_key(key: bytes, partition_count: int) -> int:
    ends = array("i", [0, len(key)])
    column = StringColumn(None, memoryview(ends), key, 0)
    encoder = IMPLEMENTATION.RowEncoder(column, column, None)
    return int(array("i", encoder.partitions(1, partition_count))[0])
