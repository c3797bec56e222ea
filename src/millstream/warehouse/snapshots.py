"""Tables of plain Parquet: which files are the table, and of which batches they are.

    TABLE/_snapshots/00000000000000000007.json    one version of the table: its files, whole
    TABLE/date=2026-09-21/batch-12-….parquet      rows; those of no version are no part of it

The version with the highest number is the table. A version is written beside its place and
then linked there, so it is there whole or not at all, and of two that want the same number
one is refused.
"""

import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

SNAPSHOTS: Final = "_snapshots"


class SnapshotTaken(Exception):
    """Somebody else wrote that version first."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    # From the table's directory.
    path: str
    size_bytes: int
    date: str
    rows: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table; version 0 is a table without a commit."""

    version: int
    # In Spark's form, as `StructType.jsonValue` gives it.
    schema: dict[str, Any]
    # The last batch of each query that is in it.
    batches: dict[str, int]
    files: tuple[SnapshotFile, ...]


def is_snapshot_table(path: Path) -> bool:
    return (path / SNAPSHOTS).is_dir()


def current_snapshot(path: Path) -> Snapshot | None:
    versions = snapshot_paths(path)
    return read_snapshot(versions[-1]) if versions else None


def snapshot_paths(path: Path) -> list[Path]:
    """Oldest first: their names are numbers of the same length."""
    return sorted((path / SNAPSHOTS).glob("*.json"))


def read_snapshot(path: Path) -> Snapshot:
    value = json.loads(path.read_text())
    files = tuple(SnapshotFile(**each) for each in value["files"])
    return Snapshot(value["version"], value["schema"], value["batches"], files)


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Make `snapshot` the current one; SnapshotTaken if its version already exists."""
    folder = path / SNAPSHOTS
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{uuid.uuid4()}.new"
    new.write_text(json.dumps(asdict(snapshot), indent=1) + "\n")
    try:
        os.link(new, folder / f"{snapshot.version:020}.json")
    except FileExistsError:
        raise SnapshotTaken(f"version {snapshot.version} of {path} already exists") from None
    finally:
        new.unlink()
