"""The source `millstream-events`: a topic of lines read as events.

It is the source `millstream`, with the lines parsed by the worker that fetched them. So they
reach Spark once, as the columns that the query wants, and not as lines that Spark would hand
to Python again.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from millstream.lines.parser import LineParser, LineRules
from millstream.pipeline.parsing import RECORD_COLUMNS, event_types, line_rules
from millstream.pipeline.spec import Spec
from millstream.spark.option_table import Use
from millstream.spark.options import ReadOptions, parse_read_options
from millstream.spark.stream import StreamReader

_NAME: Final = "millstream-events"
_RULES: Final = "eventrules"
_COLUMNS: Final = "eventcolumns"


def register_events(spark: SparkSession) -> None:
    spark.dataSource.register(EventSource)


def read_events(
    spark: SparkSession, spec: Spec, options: Mapping[str, str], columns: tuple[str, ...]
) -> DataFrame:
    """The columns of events; `options` are those of the source `millstream`."""
    stream = spark.readStream.format(_NAME).options(**options)
    return (
        stream.option(_RULES, line_rules(spec).to_json()).option(_COLUMNS, ",".join(columns)).load()
    )


class EventSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> StructType:
        return event_types(self._columns)

    # Spark calls with these very names.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        # Spark hands options over in small letters; its own mapping finds them all the same.
        given = CaseInsensitiveDict(self.options)
        rules = LineRules.from_json(given.pop(_RULES))
        del given[_COLUMNS]
        given["columns"] = ",".join(RECORD_COLUMNS)
        return EventStream(parse_read_options(given, Use.STREAM_READ), rules, self._columns)

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(self.options[_COLUMNS].split(","))


class EventStream(StreamReader):
    def __init__(self, options: ReadOptions, rules: LineRules, columns: tuple[str, ...]) -> None:
        super().__init__(options)
        self._rules = rules
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        parser = LineParser(self._rules, self._columns)
        for records in super().read(partition):
            yield parser.parse(records)
