"""Tables: a batch once, whoever else commits; the same rows after everything tables go through."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from millstream.pipeline.warehouse import (
    Batch,
    WrittenFile,
    commit_files,
    open_table,
    tidy,
    write_files,
)

SCHEMA = pa.schema(
    [("line", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("date", pa.string())]
)


def write(path: Path, lines: list[str], *, day: str = "2026-09-21") -> list[WrittenFile]:
    rows = [{"line": line, "at": 0, "date": day} for line in lines]
    return write_files(iter([pa.RecordBatch.from_pylist(rows, schema=SCHEMA)]), path)


def lines_of(path: Path) -> list[str]:
    found: list[str] = DeltaTable(str(path)).to_pyarrow_table()["line"].to_pylist()
    return sorted(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


def test_a_batch_is_in_the_table_once_however_often_it_is_committed(path: Path) -> None:
    batch = Batch("query-1", 0)
    assert commit_files(open_table(path, SCHEMA), batch, write(path, ["a", "b"]))
    assert not commit_files(open_table(path, SCHEMA), batch, write(path, ["a", "b"]))
    assert commit_files(open_table(path, SCHEMA), Batch("query-1", 1), write(path, ["c"]))
    assert lines_of(path) == ["a", "b", "c"]


def test_another_query_has_numbers_of_its_own(path: Path) -> None:
    commit_files(open_table(path, SCHEMA), Batch("query-1", 5), write(path, ["a"]))
    assert commit_files(open_table(path, SCHEMA), Batch("query-2", 0), write(path, ["b"]))
    assert lines_of(path) == ["a", "b"]


def test_a_driver_that_paused_between_check_and_commit_is_refused(path: Path) -> None:
    commit_files(open_table(path, SCHEMA), Batch("query-1", 0), write(path, ["a"]))
    paused, other = open_table(path, SCHEMA), open_table(path, SCHEMA)
    batch = Batch("query-1", 1)
    assert commit_files(other, batch, write(path, ["b"]))
    with pytest.raises(DeltaError):
        commit_files(paused, batch, write(path, ["b"]))
    assert lines_of(path) == ["a", "b"]
    assert not commit_files(open_table(path, SCHEMA), batch, write(path, ["b"]))


def test_rows_of_several_days_go_to_files_of_their_own(path: Path) -> None:
    rows = [{"line": day, "at": 0, "date": day} for day in ("2026-09-21", "2026-09-22")]
    files = write_files(iter([pa.RecordBatch.from_pylist(rows, schema=SCHEMA)]), path)
    assert {file.date: file.rows for file in files} == {"2026-09-21": 1, "2026-09-22": 1}
    commit_files(open_table(path, SCHEMA), Batch("q", 0), files)
    assert lines_of(path) == ["2026-09-21", "2026-09-22"]


def test_files_without_a_commit_are_no_part_of_the_table(path: Path) -> None:
    commit_files(open_table(path, SCHEMA), Batch("q", 0), write(path, ["a"]))
    write(path, ["crashed"])
    assert lines_of(path) == ["a"]


def test_joining_files_and_adding_a_column_change_no_row(path: Path) -> None:
    for number in range(5):
        commit_files(open_table(path, SCHEMA), Batch("q", number), write(path, [str(number)]))
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    assert len(DeltaTable(str(path)).file_uris()) == 1
    wider = SCHEMA.append(pa.field("host", pa.string()))
    row = [{"line": "5", "at": 0, "date": "2026-09-21", "host": "web-1"}]
    files = write_files(iter([pa.RecordBatch.from_pylist(row, schema=wider)]), path)
    commit_files(open_table(path, wider), Batch("q", 5), files)
    assert lines_of(path) == ["0", "1", "2", "3", "4", "5"]
    hosts = DeltaTable(str(path)).to_pyarrow_table()["host"].to_pylist()
    assert sorted(hosts, key=str) == [None] * 5 + ["web-1"]
    # The number of the last batch is still known after all that.
    assert not commit_files(open_table(path, wider), Batch("q", 5), files)


def test_days_that_are_too_old_are_removed(path: Path) -> None:
    table = open_table(path, SCHEMA)
    files = [*write(path, ["old"], day="2026-01-01"), *write(path, ["new"])]
    commit_files(table, Batch("q", 0), files)
    tidy(path, keep_days=30, today=date(2026, 9, 21))
    assert lines_of(path) == ["new"]
