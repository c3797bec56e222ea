"""Tables of the warehouse, without a jar: exactly the files of their current version.

Reading the directory itself would give rows twice after files were joined, and rows of
commits that never happened.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.warehouse.iceberg_catalog import (
    iceberg_files,
    is_iceberg_table,
    load_iceberg,
    local_path,
    spark_schema,
)
from millstream.warehouse.locations import (
    S3,
    Location,
    file_system,
    is_in_bucket,
    location_of,
)
from millstream.warehouse.snapshots import current_snapshot, is_snapshot_table

# Of a read; more files than this are read one after the other.
_BUCKET_TASKS_MAX: Final = 64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
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

    location = location_of(str(path))
    version = current_version(location)
    struct = StructType.fromJson(version.schema)
    if not version.files:
        return spark.createDataFrame([], struct)
    if is_in_bucket(location):
        return _read_bucket(spark, location, version)
    return spark.read.schema(struct).option("basePath", str(path)).parquet(*version.files)


def _read_bucket(spark: "SparkSession", location: str, version: Version) -> "DataFrame":
    """Workers read the files themselves: Spark has nothing for buckets without a jar."""
    from pyspark.sql.types import StructType

    schema = version.schema

    def read(names: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
        for batch in names:
            chosen = Version(schema, batch.column(0).to_pylist())
            yield from files_dataset(location, chosen).to_batches()

    names = spark.createDataFrame([(each,) for each in version.files], "file string")
    tasks = min(len(version.files), _BUCKET_TASKS_MAX)
    return names.repartition(tasks).mapInArrow(read, StructType.fromJson(schema))


def table_dataset(path: "str | Path") -> "Dataset":
    """The table in the directory `path` for whatever reads Arrow: Polars, DuckDB, pandas."""
    found = location_of(str(path))
    if isinstance(found, Path) and (is_snapshot_table(found) or is_iceberg_table(found)):
        return files_dataset(found, current_version(found))
    from millstream.warehouse.delta import load_delta

    return load_delta(found).dataset()


def current_version(path: Location) -> Version:
    """Of a table in any of the formats."""
    from deltalake import DeltaTable

    if not isinstance(path, Path):
        delta = DeltaTable(path)
        return Version(json.loads(delta.schema().to_json()), delta.file_uris())
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
    delta = DeltaTable(str(path))
    # Delta writes its schemas down in Spark's own form.
    return Version(json.loads(delta.schema().to_json()), delta.file_uris())


def files_dataset(path: Location, version: Version) -> "Dataset":
    """Files below `path/date=DAY`, with all columns of the table."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = to_arrow_schema(StructType.fromJson(version.schema), timezone="UTC")
    if not version.files:
        return ds.dataset(pa.Table.from_pylist([], schema=schema))
    files, folder = file_system(path)
    return ds.dataset(
        [name.removeprefix(S3) for name in version.files],
        schema=schema,
        format="parquet",
        filesystem=files,
        partitioning=ds.partitioning(pa.schema([("date", pa.string())]), flavor="hive"),
        partition_base_dir=folder,
    )
