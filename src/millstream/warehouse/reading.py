"""Tables of the warehouse, without a jar: exactly the files of their current version.

Reading the directory itself would give rows twice after files were joined, and rows of
commits that never happened.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.warehouse.iceberg_catalog import (
    iceberg_files,
    is_iceberg_table,
    load_iceberg,
    local_path,
    spark_schema,
)
from millstream.warehouse.snapshots import current_snapshot, is_snapshot_table

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Version:
    """What a table is at one moment."""

    # In Spark's form, as `StructType.jsonValue` gives it.
    schema: dict[str, Any]
    files: list[str]


def read_table(spark: "SparkSession", path: "str | Path") -> "DataFrame":
    """The table in the directory `path`; columns added later are null in older files."""
    from pyspark.sql.types import StructType

    version = current_version(Path(path))
    struct = StructType.fromJson(version.schema)
    if not version.files:
        return spark.createDataFrame([], struct)
    return spark.read.schema(struct).option("basePath", str(path)).parquet(*version.files)


def table_dataset(path: "str | Path") -> "Dataset":
    """The table in the directory `path` for whatever reads Arrow: Polars, DuckDB, pandas."""
    found = Path(path)
    if is_snapshot_table(found) or is_iceberg_table(found):
        return files_dataset(found, current_version(found))
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pyarrow_dataset()


def current_version(path: Path) -> Version:
    """Of a table in any of the formats."""
    if is_snapshot_table(path):
        snapshot = current_snapshot(path)
        if snapshot is None:
            raise FileNotFoundError(f"{path} has no version of a table")
        return Version(
            snapshot.schema, [str(path.absolute() / file.path) for file in snapshot.files]
        )
    if is_iceberg_table(path):
        table = load_iceberg(path)
        files = [local_path(task.file.file_path) for task in iceberg_files(table)]
        return Version(spark_schema(table), files)
    from deltalake import DeltaTable

    delta = DeltaTable(str(path))
    # Delta writes its schemas down in Spark's own form.
    return Version(json.loads(delta.schema().to_json()), delta.file_uris())


def files_dataset(path: Path, version: Version) -> "Dataset":
    """Files below `path/date=DAY`, with all columns of the table."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = to_arrow_schema(StructType.fromJson(version.schema), timezone="UTC")
    if not version.files:
        return ds.dataset(pa.Table.from_pylist([], schema=schema))
    return ds.dataset(
        version.files,
        schema=schema,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("date", pa.string())]), flavor="hive"),
        partition_base_dir=str(path.absolute()),
    )
