"""A table in Delta's format, by `deltalake`, without a jar."""

import json
import logging
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import SubTreeFileSystem

from millstream.warehouse.files import JOINED_BYTES, PARTITION, Batch, TableChanged, WrittenFile
from millstream.warehouse.locations import Location, file_system

log = logging.getLogger(__name__)

_KEEP_OLD_VERSIONS_HOURS: Final = 168


def is_delta(path: Location) -> bool:
    return DeltaTable.is_deltatable(str(path))


class DamagedTable(OSError):
    """The files of a table say nothing that can be read."""


def load_delta(path: Location) -> "Delta":
    """Raises DamagedTable."""
    try:
        return Delta(DeltaTable(str(path)), path)
    except DeltaError as error:
        reason = str(error).splitlines()[0]
        raise DamagedTable(
            f"the table {path} cannot be read: {reason}. Restore its _delta_log from a backup, or"
            " move the table away: the pipeline then begins a new one"
        ) from error


def open_delta(path: Location, schema: pa.Schema) -> "Delta":
    """The table, made where there is none, with columns added that it does not have yet."""
    wanted = Schema.from_arrow(schema)
    if not is_delta(path):
        if isinstance(path, Path):
            path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(str(path), wanted, mode="ignore", partition_by=[PARTITION])
    table = DeltaTable(str(path))
    known = {field.name for field in table.schema().fields}
    added = [
        Field(field.name, field.type, nullable=True)
        for field in wanted.fields
        if field.name not in known
    ]
    if added:
        table.alter.add_columns(added)
        log.info("added columns %s to %s", [field.name for field in added], path)
    return Delta(table, path)


class Delta:
    def __init__(self, table: DeltaTable, location: Location) -> None:
        self._table = table
        self._location = location

    def last_batch(self, query_id: str) -> int | None:
        return self._table.transaction_version(query_id)

    def append(self, batch: Batch, files: list[WrittenFile]) -> None:
        number = Transaction(batch.query_id, batch.number)
        self._commit(_additions(files), CommitProperties(app_transactions=[number]))

    def replace_days(self, first: str, files: list[WrittenFile]) -> None:
        # No second try: what came meanwhile would stay beside the rows made from it.
        once = CommitProperties(max_commit_retries=0)
        self._commit([*self._removals(first), *_additions(files)], once)

    def _removals(self, first: str) -> list[AddAction | RemoveAction]:
        now_ms = time.time_ns() // 1_000_000
        return [
            RemoveAction(
                path=row["path"],
                data_change=True,
                deletion_timestamp=now_ms,
                size=row["size_bytes"],
                partition_values={PARTITION: row[f"partition.{PARTITION}"]},
            )
            for row in pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
            if row[f"partition.{PARTITION}"] >= first
        ]

    def _commit(self, actions: list[AddAction | RemoveAction], how: CommitProperties) -> None:
        try:
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=[PARTITION],
                commit_properties=how,
            )
        except CommitFailedError as refused:
            raise TableChanged(str(refused)) from None

    def days(self) -> list[str]:
        return sorted({each[PARTITION] for each in self._table.partitions() if each[PARTITION]})

    def dataset(self) -> ds.Dataset:
        # With its own file system, written in Python, a thread of Arrow that still holds a file
        # when the interpreter ends would abort the process.
        files, folder = file_system(self._location)
        return self._table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(folder, files))

    def tidy(self, *, oldest_day: str | None) -> None:
        if oldest_day is not None:
            self._table.delete(f"{PARTITION} < '{oldest_day}'")
        self._table.optimize.compact(target_size=JOINED_BYTES)
        self._table.create_checkpoint()
        self._table.vacuum(retention_hours=_KEEP_OLD_VERSIONS_HOURS, dry_run=False)


def _additions(files: list[WrittenFile]) -> list[AddAction | RemoveAction]:
    now_ms = time.time_ns() // 1_000_000
    return [
        AddAction(
            file.path,
            file.size_bytes,
            {PARTITION: file.date},
            now_ms,
            True,
            json.dumps({"numRecords": file.rows}),
        )
        for file in files
    ]
