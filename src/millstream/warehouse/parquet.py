"""A table of plain Parquet files; `snapshots` says which of them are the table."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import from_arrow_schema

from millstream.warehouse.files import (
    JOINED_BYTES,
    PARTITION,
    Batch,
    TableChanged,
    WrittenFile,
    write_files,
)
from millstream.warehouse.reading import Version, files_dataset
from millstream.warehouse.snapshots import (
    Snapshot,
    SnapshotFile,
    SnapshotTaken,
    current_snapshot,
    read_snapshot,
    snapshot_paths,
    write_snapshot,
)

# Readers of an older version have this long to finish.
_KEEP_SNAPSHOTS_SECONDS: Final = 3600
# No batch takes so long from its first file to its commit.
_KEEP_FILES_SECONDS: Final = 24 * 3600


def load_parquet(path: Path) -> "Parquet":
    return Parquet(path, current_snapshot(path) or Snapshot(0, _as_json(pa.schema([])), {}, ()))


def open_parquet(path: Path, schema: pa.Schema) -> "Parquet":
    """The table, with the columns that it does not have yet; they are kept by the next commit."""
    wanted = _as_json(schema)
    current = current_snapshot(path) or Snapshot(0, wanted, {}, ())
    known = {field["name"] for field in current.schema["fields"]}
    added = [field for field in wanted["fields"] if field["name"] not in known]
    wider = {**current.schema, "fields": [*current.schema["fields"], *added]}
    return Parquet(path, replace(current, schema=wider))


def _as_json(schema: pa.Schema) -> dict[str, Any]:
    found: dict[str, Any] = from_arrow_schema(schema).jsonValue()
    return found


class Parquet:
    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        self._path = path
        self._snapshot = snapshot

    def last_batch(self, query_id: str) -> int | None:
        return self._snapshot.batches.get(query_id)

    def append(self, batch: Batch, files: list[WrittenFile]) -> None:
        self._commit(
            files=(*self._snapshot.files, *_added(files)),
            batches={**self._snapshot.batches, batch.query_id: batch.number},
        )

    def replace_days(self, first: str, files: list[WrittenFile]) -> None:
        kept = [file for file in self._snapshot.files if file.date < first]
        self._commit(files=(*kept, *_added(files)), batches=self._snapshot.batches)

    def _commit(self, *, files: tuple[SnapshotFile, ...], batches: dict[str, int]) -> None:
        old = self._snapshot
        new = Snapshot(old.version + 1, old.schema, batches, files)
        try:
            write_snapshot(self._path, new)
        except SnapshotTaken as refused:
            raise TableChanged(str(refused)) from None
        # A driver that slept for longer than versions are kept finds its number free again, below
        # versions that others made since. If instead they built on ours just now, the next
        # look at the table tells.
        if snapshot_paths(self._path)[-1].stem != f"{new.version:020}":
            raise TableChanged(f"{self._path} is past version {new.version}")
        self._snapshot = new

    def days(self) -> list[str]:
        return sorted({file.date for file in self._snapshot.files})

    def dataset(self) -> ds.Dataset:
        return self._dataset_of(self._snapshot.files)

    def _dataset_of(self, files: Iterable[SnapshotFile]) -> ds.Dataset:
        paths = [str(self._path.absolute() / file.path) for file in files]
        return files_dataset(self._path, Version(self._snapshot.schema, paths))

    def tidy(self, *, oldest_day: str | None) -> None:
        kept = [f for f in self._snapshot.files if oldest_day is None or f.date >= oldest_day]
        by_day: dict[str, list[SnapshotFile]] = defaultdict(list)
        for file in kept:
            if file.size_bytes < JOINED_BYTES:
                by_day[file.date].append(file)
        groups = [group for day in by_day.values() for group in _groups(day) if len(group) > 1]
        joined = {file.path for group in groups for file in group}
        new = _added([self._joined(group) for group in groups])
        files = (*(file for file in kept if file.path not in joined), *new)
        if files != self._snapshot.files:
            self._commit(files=files, batches=self._snapshot.batches)
        self._remove_old()

    def _joined(self, files: list[SnapshotFile]) -> WrittenFile:
        batches = self._dataset_of(files).to_batches()
        [written] = write_files(batches, self._path, name="joined", has_day_inside=True)
        return written

    def _remove_old(self) -> None:
        """Versions first, oldest first, then files that none of the others has."""
        now = time.time()
        *older, _ = snapshot_paths(self._path)
        for path in older:
            if now - path.stat().st_mtime < _KEEP_SNAPSHOTS_SECONDS:
                break
            path.unlink()
        kept = [read_snapshot(path) for path in snapshot_paths(self._path)]
        named = {file.path for file in chain.from_iterable(each.files for each in kept)}
        for found in self._path.glob(f"{PARTITION}=*/*.parquet"):
            is_old = now - found.stat().st_mtime > _KEEP_FILES_SECONDS
            if is_old and str(found.relative_to(self._path)) not in named:
                found.unlink()


def _groups(files: list[SnapshotFile]) -> list[list[SnapshotFile]]:
    """Files of one day, in their order, in groups that make one file each."""
    groups: list[list[SnapshotFile]] = [[]]
    size_bytes = 0
    for file in files:
        if size_bytes + file.size_bytes > JOINED_BYTES:
            groups.append([])
            size_bytes = 0
        groups[-1].append(file)
        size_bytes += file.size_bytes
    return groups


def _added(files: list[WrittenFile]) -> tuple[SnapshotFile, ...]:
    return tuple(SnapshotFile(**asdict(file)) for file in files)
