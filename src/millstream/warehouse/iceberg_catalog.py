"""Iceberg tables of a pipeline: found by a catalog in one SQLite file beside them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import FileScanTask, Table

CATALOG: Final = "iceberg.db"
NAMESPACE: Final = "tables"


def is_iceberg_table(path: Path) -> bool:
    return (path / "metadata").is_dir() and (path.parent / CATALOG).exists()


def open_catalog(folder: Path) -> "SqlCatalog":
    from pyiceberg.catalog.sql import SqlCatalog

    place = folder.absolute()
    return SqlCatalog("millstream", uri=f"sqlite:///{place / CATALOG}", warehouse=f"file://{place}")


def load_iceberg(path: Path) -> "Table":
    catalog = open_catalog(path.parent)
    try:
        return catalog.load_table((NAMESPACE, path.name))
    finally:
        # What commits through the table connects again.
        catalog.engine.dispose()


def iceberg_files(table: "Table") -> "list[FileScanTask]":
    """The files of the table's current version."""
    found = list(table.scan().plan_files())
    if any(task.delete_files for task in found):
        raise ValueError("the table has rows removed one by one, which its files do not show")
    return found


def local_path(uri: str) -> str:
    return uri.removeprefix("file://")


def spark_schema(table: "Table") -> dict[str, Any]:
    """In Spark's form."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found: dict[str, Any] = from_arrow_schema(table.schema().as_arrow()).jsonValue()
    return found
