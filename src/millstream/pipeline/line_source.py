"""The source `millstream-lines`: a topic of lines read as what one pass over them gives.

It is the source `millstream`, with `line_pass` run by the worker that fetched the lines. So they
never reach Spark itself, which gets a few rows from each task. Spark starts several processes for
every query that import this module to plan it, so what only tasks need is imported where they run.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from millstream.spark.option_table import Use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME: Final = "millstream-lines"
_RULES: Final = "passrules"


def register_lines(spark: "SparkSession") -> None:
    spark.dataSource.register(LineSource)


def read_lines(spark: "SparkSession", options: Mapping[str, str], rules: str) -> "DataFrame":
    """What tasks report; `options` are those of the source `millstream`, `rules` `PassRules`."""
    from millstream.pipeline.line_pass import REPORT

    stream = spark.readStream.format(_NAME).schema(REPORT).options(**options)
    return stream.option(_RULES, rules).load()


class LineSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return _NAME

    # Spark calls with these very names.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from millstream.pipeline.line_stream import LineStream
        from millstream.spark.options import parse_read_options

        # Spark hands options over in small letters; its own mapping finds them all the same.
        given = CaseInsensitiveDict(self.options)
        rules = given.pop(_RULES)
        return LineStream(parse_read_options(given, Use.STREAM_READ), rules)
