"""Files of rows, before any table has them: what the formats of tables have in common."""

import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from millstream.warehouse.locations import Location, file_system

# Tables are divided by it: the day of an event, in the declared time zone.
PARTITION: Final = "date"
# Files of at least this size are not joined with others.
JOINED_BYTES: Final = 32 * 1024 * 1024
# A row group has at least so many rows or bytes, if a task has as many.
_GROUP_ROWS: Final = 1 << 17
_GROUP_BYTES: Final = 32 << 20


class TableChanged(Exception):
    """Somebody else committed since the table was loaded; nothing was written."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Which micro-batch rows belong to; `query_id` stays the same over restarts."""

    query_id: str
    number: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    # From the table's directory.
    path: str
    size_bytes: int
    date: str
    rows: int


class Table(Protocol):
    """One version of a table, as it was loaded. What it commits rests on that version."""

    def last_batch(self, query_id: str) -> int | None:
        """The number of the last batch of a query that is in this version."""

    def append(self, batch: Batch, files: list[WrittenFile]) -> None:
        """Commit files as that batch, or raise TableChanged."""

    def replace_days(self, first: str, files: list[WrittenFile]) -> None:
        """Commit files instead of all rows of `first` and later days, or raise TableChanged."""

    def days(self) -> list[str]:
        """Days that it has rows of, in order."""

    def dataset(self) -> ds.Dataset:
        """The rows of this version."""

    def tidy(self, *, oldest_day: str | None) -> None:
        """Join small files, forget days before `oldest_day`, remove what nothing needs."""


class DayFiles:
    """Files that are being written: one Parquet file for each day, called after `name`.

    `has_day_inside`: the day is a column of the file, too; otherwise only its path has it.
    """

    def __init__(self, location: Location, *, name: str, has_day_inside: bool) -> None:
        self._file_system, self._folder = file_system(location)
        self._name = name
        self._has_day_inside = has_day_inside
        self._files: dict[str, _DayFile] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        days = pc.unique(batch.column(PARTITION)).to_pylist()
        for day in days:
            # Most batches are of one day, and need not be copied for it.
            is_day = pc.equal(batch.column(PARTITION), day)
            rows = batch if len(days) == 1 else batch.filter(is_day)
            rows = _in_utc(rows if self._has_day_inside else rows.drop_columns([PARTITION]))
            if day not in self._files:
                path = f"{PARTITION}={day}/{self._name}-{uuid.uuid4()}.parquet"
                where = f"{self._folder}/{path}"
                self._files[day] = _DayFile(self._file_system, where, path, rows.schema)
            self._files[day].write(rows)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def written(self) -> list[WrittenFile]:
        """What there is, after it was closed."""
        return [
            WrittenFile(file.path, self._size_bytes(file.path), day, file.rows)
            for day, file in self._files.items()
        ]

    def _size_bytes(self, path: str) -> int:
        size_bytes: int | None = self._file_system.get_file_info(f"{self._folder}/{path}").size
        assert size_bytes is not None, f"{path} was written and is not there"
        return size_bytes


class _DayFile:
    """Rows are held until they make a row group: small ones take longer, and more space."""

    def __init__(self, files: FileSystem, where: str, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        files.create_dir(where.rpartition("/")[0], recursive=True)
        self._writer = pq.ParquetWriter(
            where,
            schema,
            filesystem=files,
            compression="zstd",
            # Numbers, times and whole lines hardly repeat: looking for that takes a third of the
            # time.
            use_dictionary=_text_columns(schema),
        )

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.rows += rows.num_rows
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._write_held()

    def _write_held(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
        self._held = []
        self._held_rows = self._held_bytes = 0

    def close(self) -> None:
        try:
            self._write_held()
        finally:
            self._writer.close()


def _text_columns(schema: pa.Schema) -> list[str]:
    """By their paths in a file."""
    found = []
    for field in schema:
        if pa.types.is_map(field.type):
            found += [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        elif pa.types.is_string(field.type):
            found.append(field.name)
    return found


def write_files(
    batches: Iterable[pa.RecordBatch], location: Location, *, name: str, has_day_inside: bool
) -> list[WrittenFile]:
    files = DayFiles(location, name=name, has_day_inside=has_day_inside)
    with closing(files):
        for batch in batches:
            files.write(batch)
    return files.written()


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With times as all formats want them."""
    fields, columns = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            field = field.with_type(pa.timestamp("us", tz="UTC"))
            column = column.cast(field.type)
        fields.append(field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
