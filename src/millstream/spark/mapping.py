"""Topics through a function of Arrow batches, which runs in the worker that reads them.

Spark turns every Arrow batch of a Python source into rows, and back for `mapInArrow`. That takes
longer than to read the records. Here the function gets the batches first, and Spark only what it
returns: after counting or filtering, that is little.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from millstream.spark.mapped_source import Function


def map_records(
    spark: "SparkSession",
    options: Mapping[str, str],
    function: "Function",
    schema: "StructType | str",
) -> "DataFrame":
    """A topic as what `function` makes of it, with the columns of `schema`.

    `options` are those of a read. The function is called as that of `mapInArrow`: once for each
    task, with its batches.
    """
    from millstream.spark.mapped_source import FUNCTION, NAME, MappedSource, pack

    spark.dataSource.register(MappedSource)
    rows = spark.read.format(NAME).schema(schema).options(**options)
    return rows.option(FUNCTION, pack(function)).load()


def map_record_stream(
    spark: "SparkSession",
    options: Mapping[str, str],
    function: "Function",
    schema: "StructType | str",
) -> "DataFrame":
    """The same for a stream: the function is called for each task of each micro-batch."""
    from millstream.spark.mapped_source import FUNCTION, NAME, MappedSource, pack

    spark.dataSource.register(MappedSource)
    rows = spark.readStream.format(NAME).schema(schema).options(**options)
    return rows.option(FUNCTION, pack(function)).load()
