"""A table in Iceberg's format, by `pyiceberg`, without a jar.

The number of the last batch is a property of the table, set by the commit that adds the
batch's files. `pyiceberg` would retry a refused commit, and add the batch again
after another driver added it; so its retries are turned off.
"""

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table import Table as PyIcebergTable

from millstream.warehouse.files import (
    JOINED_BYTES,
    PARTITION,
    Batch,
    TableChanged,
    WrittenFile,
    write_files,
)
from millstream.warehouse.iceberg_catalog import (
    NAMESPACE,
    iceberg_files,
    is_iceberg_table,
    load_iceberg,
    local_path,
    open_catalog,
    spark_schema,
)
from millstream.warehouse.reading import Version, files_dataset

_KEEP_VERSIONS: Final = timedelta(days=7)
_KEEP_FILES_SECONDS: Final = 24 * 3600
_PROPERTIES: Final = {
    "commit.retry.num-retries": "0",
    # Each commit rewrites the table's metadata.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


def find_iceberg_table(path: Path) -> "Iceberg | None":
    """None also where a crash left files of a table that the catalog never heard of."""
    try:
        return Iceberg(path, load_iceberg(path))
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def open_iceberg(path: Path, schema: pa.Schema) -> "Iceberg":
    """The table, made where there is none, with columns added that it does not have yet."""
    if not is_iceberg_table(path) or find_iceberg_table(path) is None:
        _create(path, schema)
    table = load_iceberg(path)
    known = set(table.schema().column_names)
    if any(name not in known for name in schema.names):
        try:
            with table.update_schema() as change:
                change.union_by_name(schema)
        except CommitFailedException as refused:
            raise TableChanged(str(refused)) from None
    return Iceberg(path, table)


def _create(path: Path, schema: pa.Schema) -> None:
    path.mkdir(parents=True, exist_ok=True)
    catalog = open_catalog(path.parent)
    try:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        with (
            catalog.create_table_transaction(
                (NAMESPACE, path.name),
                schema=schema,
                location=f"file://{path.absolute()}",
                properties=_PROPERTIES,
            ) as transaction,
            transaction.update_spec() as division,
        ):
            division.add_identity(PARTITION)
    except (TableAlreadyExistsError, CommitFailedException):
        # Another driver made it just now.
        pass
    finally:
        catalog.engine.dispose()


def _number_of(query_id: str) -> str:
    return f"millstream.batch.{query_id}"


class Iceberg:
    def __init__(self, path: Path, table: PyIcebergTable) -> None:
        self._path = path
        self._table = table

    def last_batch(self, query_id: str) -> int | None:
        found = self._table.properties.get(_number_of(query_id))
        return None if found is None else int(found)

    def append(self, batch: Batch, files: list[WrittenFile]) -> None:
        transaction = self._table.transaction()
        transaction.set_properties({_number_of(batch.query_id): str(batch.number)})
        self._add(transaction, [file.path for file in files])
        _commit(transaction)

    def replace_days(self, first: str, files: list[WrittenFile]) -> None:
        transaction = self._table.transaction()
        if any(day >= first for day in self.days()):
            transaction.delete(f"{PARTITION} >= '{first}'")
        self._add(transaction, [file.path for file in files])
        _commit(transaction)

    def _add(self, transaction: Transaction, paths: list[str]) -> None:
        """Files by their paths from the table's directory."""
        if paths:
            whole = [f"file://{self._path.absolute() / path}" for path in paths]
            # Names are never used twice, and looking for them takes all of the metadata.
            transaction.add_files(whole, check_duplicate_files=False)

    def days(self) -> list[str]:
        return sorted({_day(task) for task in iceberg_files(self._table)})

    def dataset(self) -> ds.Dataset:
        return self._dataset_of(iceberg_files(self._table))

    def _dataset_of(self, tasks: list[FileScanTask]) -> ds.Dataset:
        files = [local_path(task.file.file_path) for task in tasks]
        return files_dataset(self._path, Version(spark_schema(self._table), files))

    def tidy(self, *, oldest_day: str | None) -> None:
        by_day: dict[str, list[FileScanTask]] = defaultdict(list)
        for task in iceberg_files(self._table):
            by_day[_day(task)].append(task)
        transaction = self._table.transaction()
        is_changed = False
        if oldest_day is not None and min(by_day, default=oldest_day) < oldest_day:
            transaction.delete(f"{PARTITION} < '{oldest_day}'")
            is_changed = True
        for day, tasks in sorted(by_day.items()):
            small = [task for task in tasks if task.file.file_size_in_bytes < JOINED_BYTES]
            if len(small) > 1 and (oldest_day is None or day >= oldest_day):
                self._join(transaction, day, small, [task for task in tasks if task not in small])
                is_changed = True
        if is_changed:
            _commit(transaction)
        self._remove_old()

    def _join(
        self,
        transaction: Transaction,
        day: str,
        small: list[FileScanTask],
        large: list[FileScanTask],
    ) -> None:
        """The day is taken out, and comes back with one file in place of its small ones."""
        batches = self._dataset_of(small).to_batches()
        [joined] = write_files(batches, self._path, name="joined", has_day_inside=True)
        transaction.delete(f"{PARTITION} = '{day}'")
        kept = [_path_in_table(task.file.file_path) for task in large]
        self._add(transaction, [joined.path, *kept])

    def _remove_old(self) -> None:
        """Old versions, and files of rows that no version has any more."""
        limit = datetime.now(UTC) - _KEEP_VERSIONS
        try:
            self._table.maintenance.expire_snapshots().older_than(limit).commit()
        except CommitFailedException as refused:
            raise TableChanged(str(refused)) from None
        table = load_iceberg(self._path)
        uris = table.inspect.all_files()["file_path"].to_pylist()
        named = {_path_in_table(uri) for uri in uris}
        now = time.time()
        for found in self._path.absolute().glob(f"{PARTITION}=*/*.parquet"):
            is_old = now - found.stat().st_mtime > _KEEP_FILES_SECONDS
            if is_old and _path_in_table(str(found)) not in named:
                found.unlink()


def _path_in_table(place: str) -> str:
    """`date=DAY/FILE`. The directory before it may have other names, by a link or a mount, and a
    table has files that were added under each of them."""
    return "/".join(place.split("/")[-2:])


def _day(task: FileScanTask) -> str:
    return str(task.file.partition[0])


def _commit(transaction: Transaction) -> None:
    try:
        transaction.commit_transaction()
    except CommitFailedException as refused:
        raise TableChanged(str(refused)) from None
