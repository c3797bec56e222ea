"""The source `millstream-events`: a topic of lines read as events.

It is the source `millstream`, with the lines parsed by the worker that fetched them. So they
reach Spark once, as the columns that the query wants, and not as lines that Spark would hand
to Python again. Spark starts several processes for every query that import this module to
plan it, so what only tasks need is imported where they run.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from millstream.spark.option_table import Use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.pipeline.spec import Spec

_NAME: Final = "millstream-events"
_RULES: Final = "eventrules"


def register_events(spark: "SparkSession") -> None:
    spark.dataSource.register(EventSource)


def read_events(
    spark: "SparkSession", spec: "Spec", options: Mapping[str, str], columns: tuple[str, ...]
) -> "DataFrame":
    """The columns of events; `options` are those of the source `millstream`."""
    from millstream.pipeline.parsing import event_types, line_rules

    stream = spark.readStream.format(_NAME).schema(event_types(columns)).options(**options)
    return stream.option(_RULES, line_rules(spec).to_json()).load()


class EventSource(DataSource):
    """Always read with a schema: that says which columns of events are made."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    # Spark calls with these very names.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from millstream.pipeline.event_stream import EventStream
        from millstream.spark.options import parse_read_options

        # Spark hands options over in small letters; its own mapping finds them all the same.
        given = CaseInsensitiveDict(self.options)
        rules = given.pop(_RULES)
        return EventStream(
            parse_read_options(given, Use.STREAM_READ), rules, tuple(schema.fieldNames())
        )
