"""The source `millstream-mapped`: the source `millstream`, with a function run in its tasks.

What `mapping` registers with a session.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.spark.option_table import Use
from millstream.spark.options import ReadOptions, parse_read_options
from millstream.spark.reader import BatchReader
from millstream.spark.stream import StreamReader

Batches = Iterator[pa.RecordBatch]
# Of a task: all batches of its records, into those that Spark gets.
Function = Callable[[Batches], Batches]

NAME: Final = "millstream-mapped"
# An option: the function, packed.
FUNCTION: Final = "mappingfunction"


def pack(function: Function) -> str:
    packed: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    return base64.b64encode(packed).decode()


class MappedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    # Spark calls with these very names.
    def reader(self, schema: StructType) -> DataSourceReader:
        options, mapping = self._split(schema)
        return _MappedReader(parse_read_options(options, Use.BATCH_READ), mapping)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options, mapping = self._split(schema)
        return _MappedStream(parse_read_options(options, Use.STREAM_READ), mapping)

    def _split(self, schema: StructType) -> "tuple[Mapping[str, str], _Mapping]":
        # Spark hands options over in small letters; its own mapping finds them all the same.
        options = CaseInsensitiveDict(self.options)
        return options, _Mapping(options.pop(FUNCTION), schema)


class _Mapping:
    """Runs in a task; the function is unpacked only there."""

    def __init__(self, function: str, schema: StructType) -> None:
        self._function = function
        self._schema = schema

    def run(self, records: Batches) -> Batches:
        function: Function = cloudpickle.loads(base64.b64decode(self._function))
        # Spark refuses other types, even those that it would take in `mapInArrow`.
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in function(records):
            yield batch.select(schema.names).cast(schema)


class _MappedReader(BatchReader):
    def __init__(self, options: ReadOptions, mapping: _Mapping) -> None:
        super().__init__(options)
        self._mapping = mapping

    def read(self, partition: InputPartition) -> Batches:
        return self._mapping.run(super().read(partition))


class _MappedStream(StreamReader):
    def __init__(self, options: ReadOptions, mapping: _Mapping) -> None:
        super().__init__(options)
        self._mapping = mapping

    def read(self, partition: InputPartition) -> Batches:
        return self._mapping.run(super().read(partition))
