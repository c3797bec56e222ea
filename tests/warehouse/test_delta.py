"""What only tables in Delta's format do; what all formats do is in test_tables.py."""

from pathlib import Path

import pytest
from pyarrow.fs import PyFileSystem

from millstream.warehouse.delta import DamagedTable
from millstream.warehouse.files import Batch
from millstream.warehouse.reading import table_dataset
from millstream.warehouse.tables import DELTA, find_table
from tests.warehouse.table_cases import append


def test_arrow_reads_the_files_without_calling_python(tmp_path: Path) -> None:
    """A thread of Arrow that calls Python while the interpreter ends aborts the process."""
    path = tmp_path / "events"
    append(path, Batch("q", 0), ["a"], DELTA)
    files = [fragment.filesystem for fragment in table_dataset(path).get_fragments()]
    assert len(files) == 1
    while hasattr(files[-1], "base_fs"):
        files.append(files[-1].base_fs)
    assert not any(isinstance(each, PyFileSystem) for each in files)


def test_a_damaged_log_of_a_table_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "events"
    append(path, Batch("q", 0), ["a"], DELTA)
    for entry in (path / "_delta_log").glob("*.json"):
        entry.write_text("garbage")
    with pytest.raises(DamagedTable, match=r"events cannot be read: .* begins a new one"):
        find_table(path)
