"""A streaming source that does nothing: what Spark itself takes for any source in Python.

Spark starts a process for each streaming query that plans its batches, and imports this module
there, so it imports nothing else.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

ROWS = 1000


class EmptySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "value binary"

    # Spark calls with these very names.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _EmptyStream()


class _EmptyStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, object]:
        return {"end": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """There is one batch in any case."""

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        return {"end": ROWS}

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        values = pa.array([b"x" * 100] * (ROWS // 2), pa.binary())
        yield pa.RecordBatch.from_arrays([values], names=["value"])
