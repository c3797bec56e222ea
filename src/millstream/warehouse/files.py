"""Files of rows, before any table has them: what the formats of tables have in common."""

import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

# Tables are divided by it: the day of an event, in the declared time zone.
PARTITION: Final = "date"
# Files of at least this size are not joined with others.
JOINED_BYTES: Final = 128 * 1024 * 1024


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

    def __init__(self, folder: Path, *, name: str, has_day_inside: bool) -> None:
        self._folder = folder
        self._name = name
        self._has_day_inside = has_day_inside
        self._writers: dict[str, tuple[str, pq.ParquetWriter]] = {}
        self._counts: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        days = pc.unique(batch.column(PARTITION)).to_pylist()
        for day in days:
            # Most batches are of one day, and need not be copied for it.
            is_day = pc.equal(batch.column(PARTITION), day)
            rows = batch if len(days) == 1 else batch.filter(is_day)
            rows = _in_utc(rows if self._has_day_inside else rows.drop_columns([PARTITION]))
            if day not in self._writers:
                path = f"{PARTITION}={day}/{self._name}-{uuid.uuid4()}.parquet"
                (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(self._folder / path, rows.schema, compression="zstd")
                self._writers[day] = (path, writer)
            self._writers[day][1].write_batch(rows)
            self._counts[day] = self._counts.get(day, 0) + rows.num_rows

    def close(self) -> None:
        for _, writer in self._writers.values():
            writer.close()

    def written(self) -> list[WrittenFile]:
        """What there is, after it was closed."""
        return [
            WrittenFile(path, (self._folder / path).stat().st_size, day, self._counts[day])
            for day, (path, _) in self._writers.items()
        ]


def write_files(
    batches: Iterable[pa.RecordBatch], folder: Path, *, name: str, has_day_inside: bool
) -> list[WrittenFile]:
    files = DayFiles(folder, name=name, has_day_inside=has_day_inside)
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
