"""Tables of the warehouse, without a jar: exactly the files of their current version.

Reading the directory itself would give rows twice after files were joined, and rows of
commits that never happened.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.spark.snapshots import (
    Snapshot,
    SnapshotFile,
    current_snapshot,
    is_snapshot_table,
)

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: "SparkSession", path: "str | Path") -> "DataFrame":
    """The table in the directory `path`; columns added later are null in older files."""
    from pyspark.sql.types import StructType

    found = Path(path)
    if is_snapshot_table(found):
        schema, files = _parquet_files(found)
    else:
        schema, files = _delta_files(found)
    struct = StructType.fromJson(schema)
    if not files:
        return spark.createDataFrame([], struct)
    return spark.read.schema(struct).option("basePath", str(path)).parquet(*files)


def table_dataset(path: "str | Path") -> "Dataset":
    """The table in the directory `path` for whatever reads Arrow: Polars, DuckDB, pandas."""
    found = Path(path)
    if is_snapshot_table(found):
        snapshot = current_snapshot(found)
        if snapshot is None:
            raise FileNotFoundError(f"{path} has no version of a table")
        return snapshot_dataset(found, snapshot, snapshot.files)
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pyarrow_dataset()


def snapshot_dataset(
    path: Path, snapshot: Snapshot, files: "tuple[SnapshotFile, ...]"
) -> "Dataset":
    """Some of the files of a table of plain Parquet, with all columns of the table."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = to_arrow_schema(StructType.fromJson(snapshot.schema), timezone="UTC")
    if not files:
        return ds.dataset(pa.Table.from_pylist([], schema=schema))
    return ds.dataset(
        [str(path / file.path) for file in files],
        schema=schema,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("date", pa.string())]), flavor="hive"),
        partition_base_dir=str(path),
    )


def _delta_files(path: Path) -> tuple[dict[str, Any], list[str]]:
    from deltalake import DeltaTable

    table = DeltaTable(str(path))
    # Delta writes its schemas down in Spark's own form.
    return json.loads(table.schema().to_json()), table.file_uris()


def _parquet_files(path: Path) -> tuple[dict[str, Any], list[str]]:
    snapshot = current_snapshot(path)
    if snapshot is None:
        return {"type": "struct", "fields": []}, []
    return snapshot.schema, [str(path / file.path) for file in snapshot.files]
