"""Where Spark finds the data source `millstream`.

Spark imports every module on the path whose name begins with `pyspark_`, and one that
fails hides all of them. So this one is small, never raises, and loads the rest when the
source is used. Installed on every node, `format("millstream")` just works; elsewhere call
`pyspark_millstream.register(spark)`.
"""

from typing import TYPE_CHECKING

__all__ = ["register"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType
except Exception:  # whatever is wrong with pyspark, other sources must stay visible
    _HAS_SPARK = False
else:
    _HAS_SPARK = True

    class DefaultSource(DataSource):
        """The name is Spark's: the class that it looks for in this module."""

        @classmethod
        def name(cls) -> str:
            return "millstream"

        def schema(self) -> StructType:
            from millstream.spark.source import read_schema

            return read_schema(self.options)

        def reader(self, schema: StructType) -> DataSourceReader:
            from millstream.spark.source import batch_reader

            return batch_reader(self.options, schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            from millstream.spark.source import stream_reader

            return stream_reader(self.options, schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            from millstream.spark.source import batch_writer

            return batch_writer(self.options, schema, overwrite=overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            # Spark calls with these very names. `overwrite` is its word for complete mode,
            # in which a topic gets every row again, as with Spark's own Kafka sink.
            from millstream.spark.source import stream_writer

            return stream_writer(self.options, schema)


def register(spark: "SparkSession") -> None:
    """Make `format("millstream")` known to one session, without any search."""
    if not _HAS_SPARK:
        raise ImportError("pyspark 4.3 is not installed: pip install 'millstream[spark]'")
    spark.dataSource.register(DefaultSource)
