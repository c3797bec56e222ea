"""A Delta table as a DataFrame, without a jar: exactly the files of its current version.

Reading the directory itself would give rows twice after files were joined, and rows of
commits that never happened.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: "SparkSession", path: "str | Path") -> "DataFrame":
    """The table in the directory `path`; columns added later are null in older files."""
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    table = DeltaTable(str(path))
    # Delta writes its schemas down in Spark's own form.
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", str(path)).parquet(*files)
