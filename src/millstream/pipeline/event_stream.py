"""A stream of records whose tasks hand on events."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from millstream.spark.options import ReadOptions
from millstream.spark.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa


class EventStream(StreamReader):
    def __init__(self, options: ReadOptions, rules: str, columns: tuple[str, ...]) -> None:
        """`rules`: those of lines, as JSON."""
        super().__init__(options)
        self._rules = rules
        self._columns = columns

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from millstream.lines.parser import LineParser, LineRules

        parser = LineParser(LineRules.from_json(self._rules), self._columns)
        for records in super().read(partition):
            yield parser.parse(records)
