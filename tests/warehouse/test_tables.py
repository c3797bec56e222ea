"""Tables: a batch once, whoever else commits; the same rows after everything tables go through."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from millstream.warehouse import EVENTS
from millstream.warehouse import iceberg as iceberg_table
from millstream.warehouse import parquet as parquet_table
from millstream.warehouse.files import Batch, Table, TableChanged, WrittenFile
from millstream.warehouse.parquet import load_parquet
from millstream.warehouse.snapshots import current_snapshot, snapshot_paths
from millstream.warehouse.tables import (
    TABLE_SCHEMAS,
    commit_batch,
    commit_files,
    event_rows,
    find_table,
    open_table,
    tidy,
)
from tests.warehouse.table_cases import SCHEMA, append, lines_of, write, write_table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("delta", "parquet", "iceberg")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


@pytest.fixture(params=FORMATS)
def table_format(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_a_batch_is_in_the_table_once_however_often_it_is_committed(
    path: Path, table_format: str
) -> None:
    assert append(path, Batch("query-1", 0), ["a", "b"], table_format)
    assert not append(path, Batch("query-1", 0), ["a", "b"], table_format)
    assert append(path, Batch("query-1", 1), ["c"], table_format)
    assert lines_of(path) == ["a", "b", "c"]


def test_another_query_has_numbers_of_its_own(path: Path, table_format: str) -> None:
    append(path, Batch("query-1", 5), ["a"], table_format)
    assert append(path, Batch("query-2", 0), ["b"], table_format)
    assert lines_of(path) == ["a", "b"]


class PausedBeforeCommit:
    """A table whose driver stands still between its check and its commit."""

    def __init__(self, table: Table, checked: Event, may_go_on: Event) -> None:
        self._table = table
        self._checked = checked
        self._may_go_on = may_go_on

    def last_batch(self, query_id: str) -> int | None:
        return self._table.last_batch(query_id)

    def append(self, batch: Batch, files: list[WrittenFile]) -> None:
        self._checked.set()
        assert self._may_go_on.wait(60)
        self._table.append(batch, files)


def paused_driver(path: Path, table_format: str, checked: Event, may_go_on: Event) -> None:
    """A process of its own: commits batch 1, with a pause; its exit code says how that went."""
    files = write(path, ["b"], table_format)
    table = PausedBeforeCommit(open_table(path, SCHEMA, table_format), checked, may_go_on)
    try:
        commit_files(table, Batch("query-1", 1), files)  # type: ignore[arg-type]
    except TableChanged:
        os._exit(3)
    os._exit(0)


def test_of_two_live_drivers_the_one_that_paused_is_refused(path: Path, table_format: str) -> None:
    append(path, Batch("query-1", 0), ["a"], table_format)
    context = multiprocessing.get_context("spawn")
    checked, may_go_on = context.Event(), context.Event()
    driver = context.Process(target=paused_driver, args=(path, table_format, checked, may_go_on))
    driver.start()
    try:
        assert checked.wait(60)
        assert append(path, Batch("query-1", 1), ["b"], table_format)
        may_go_on.set()
        driver.join(60)
    finally:
        driver.kill()
    assert driver.exitcode == 3
    assert lines_of(path) == ["a", "b"]
    # It loads the table and asks again: the batch is there.
    assert not append(path, Batch("query-1", 1), ["b"], table_format)


def test_a_table_made_by_two_at_once_has_the_batch_once(path: Path, table_format: str) -> None:
    first, second = (open_table(path, SCHEMA, table_format) for _ in range(2))
    assert commit_files(first, Batch("q", 0), write(path, ["a"], table_format))
    with pytest.raises(TableChanged):
        commit_files(second, Batch("q", 0), write(path, ["a"], table_format))
    assert lines_of(path) == ["a"]


def test_many_who_commit_at_once_each_get_their_batches_in_once(
    path: Path, table_format: str
) -> None:
    open_table(path, SCHEMA, table_format)

    def commit(query: int) -> None:
        for number in range(3):
            batch = Batch(f"query-{query}", number)
            for _ in range(2):
                files = write(path, [f"{query}.{number}"], table_format)
                commit_batch(path, SCHEMA, table_format, batch, files)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(commit, range(3)))
    assert lines_of(path) == [f"{query}.{number}" for query in range(3) for number in range(3)]


def test_rows_of_several_days_go_to_files_of_their_own(path: Path, table_format: str) -> None:
    rows: list[dict[str, object]] = [
        {"line": day, "at": 0, "date": day} for day in ("2026-09-21", "2026-09-22")
    ]
    files = write_table_rows(path, rows, SCHEMA, table_format)
    assert {file.date: file.rows for file in files} == {"2026-09-21": 1, "2026-09-22": 1}
    commit_files(open_table(path, SCHEMA, table_format), Batch("q", 0), files)
    assert lines_of(path) == ["2026-09-21", "2026-09-22"]
    table = find_table(path)
    assert table is not None
    assert table.days() == ["2026-09-21", "2026-09-22"]
    one_day = table.dataset().to_table(filter=ds.field("date") == "2026-09-22")
    assert one_day["line"].to_pylist() == ["2026-09-22"]


def test_files_without_a_commit_are_no_part_of_the_table(path: Path, table_format: str) -> None:
    append(path, Batch("q", 0), ["a"], table_format)
    write(path, ["crashed"], table_format)
    assert lines_of(path) == ["a"]


def test_joining_files_and_adding_a_column_change_no_row(path: Path, table_format: str) -> None:
    for number in range(5):
        append(path, Batch("q", number), [str(number)], table_format)
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    assert file_count(path) == 1
    wider = SCHEMA.append(pa.field("host", pa.string()))
    row: list[dict[str, object]] = [{"line": "5", "at": 0, "date": "2026-09-21", "host": "web-1"}]
    files = write_table_rows(path, row, wider, table_format)
    commit_files(open_table(path, wider, table_format), Batch("q", 5), files)
    assert lines_of(path) == ["0", "1", "2", "3", "4", "5"]
    table = find_table(path)
    assert table is not None
    hosts = table.dataset().to_table()["host"].to_pylist()
    assert sorted(hosts, key=str) == [None] * 5 + ["web-1"]
    # The number of the last batch is still known after all that; so is the new column.
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    assert not commit_files(open_table(path, SCHEMA, table_format), Batch("q", 5), files)
    assert lines_of(path) == ["0", "1", "2", "3", "4", "5"]


def file_count(path: Path) -> int:
    table = find_table(path)
    assert table is not None
    return len(table.dataset().files)


def test_days_that_are_too_old_are_removed(path: Path, table_format: str) -> None:
    old = write(path, ["old"], table_format, day="2026-01-01")
    files = [*old, *write(path, ["new"], table_format)]
    commit_files(open_table(path, SCHEMA, table_format), Batch("q", 0), files)
    tidy(path, keep_days=30, today=date(2026, 9, 21))
    assert lines_of(path) == ["new"]


def test_days_are_replaced_as_a_whole(path: Path, table_format: str) -> None:
    for number, day in enumerate(("2026-09-20", "2026-09-21", "2026-09-22")):
        append(path, Batch("q", number), [f"old-{day}"], table_format, day=day)
    table = find_table(path)
    assert table is not None
    table.replace_days("2026-09-21", write(path, ["new"], table_format))
    assert lines_of(path) == ["new", "old-2026-09-20"]
    assert not append(path, Batch("q", 2), ["again"], table_format)


def test_days_are_not_replaced_when_a_batch_came_meanwhile(path: Path, table_format: str) -> None:
    append(path, Batch("q", 0), ["a"], table_format)
    table = find_table(path)
    assert table is not None
    append(path, Batch("q", 1), ["b"], table_format)
    with pytest.raises(TableChanged):
        table.replace_days("2026-09-21", write(path, ["made from a alone"], table_format))
    assert lines_of(path) == ["a", "b"]


@pytest.mark.slow
def test_days_of_events_are_in_years_that_everybody_can_name(shared_spark: "SparkSession") -> None:
    spark = shared_spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    times = {"'-1199-02-15'": "0001-01-01", "'+12000-01-01'": "9999-12-31", "NULL": None}
    times["'2026-09-21 23:00:00'"] = "2026-09-21"
    others = [name for name in TABLE_SCHEMAS[EVENTS].names if name not in ("record_time", "date")]
    nulls = ", ".join(f"CAST(NULL AS STRING) AS {name}" for name in others if name != "problem")
    rows = " UNION ALL ".join(
        f"SELECT CAST({at} AS TIMESTAMP) AS record_time, 'late' AS problem, {nulls}" for at in times
    )
    found = event_rows(spark.sql(rows)).select("date").collect()
    assert {row.date for row in found} == set(times.values())


# -- plain Parquet ---------------------------------------------------------------------------


def test_old_versions_and_files_of_no_version_are_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        append(path, Batch("q", number), [str(number)], "parquet")
    write(path, ["crashed"], "parquet")
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    # Young ones may be in somebody's hands.
    assert len(snapshot_paths(path)) == 4
    assert len(list(path.glob("date=*/*.parquet"))) == 5
    monkeypatch.setattr(parquet_table, "_KEEP_SNAPSHOTS_SECONDS", -1)
    monkeypatch.setattr(parquet_table, "_KEEP_FILES_SECONDS", -1)
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    assert [each.stem[-1] for each in snapshot_paths(path)] == ["4"]
    assert len(list(path.glob("date=*/*.parquet"))) == 1
    assert lines_of(path) == ["0", "1", "2"]


def test_a_driver_that_slept_until_its_version_was_removed_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, Batch("q", 0), ["a"], "parquet")
    asleep = load_parquet(path)
    for number in range(1, 4):
        append(path, Batch("q", number), [str(number)], "parquet")
    monkeypatch.setattr(parquet_table, "_KEEP_SNAPSHOTS_SECONDS", -1)
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    with pytest.raises(TableChanged):
        commit_files(asleep, Batch("q", 1), write(path, ["1"], "parquet"))
    assert lines_of(path) == ["1", "2", "3", "a"]


def test_a_version_that_was_not_written_whole_is_not_there(path: Path) -> None:
    append(path, Batch("q", 0), ["a"], "parquet")
    (path / "_snapshots" / "1234.new").write_text('{"version": 2, "fil')
    found = current_snapshot(path)
    assert found is not None
    assert (found.version, found.batches) == (1, {"q": 0})
    assert lines_of(path) == ["a"]


def test_large_files_are_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        append(path, Batch("q", number), [str(number)], "parquet")
    monkeypatch.setattr(parquet_table, "JOINED_BYTES", 1)
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    assert file_count(path) == 4


# -- Iceberg ---------------------------------------------------------------------------------


def test_a_crash_while_iceberg_makes_a_table_does_not_last(path: Path) -> None:
    append(path.with_name("raw"), Batch("q", 0), ["a"], "iceberg")
    # What is written before the catalog knows of the table.
    (path / "metadata").mkdir(parents=True)
    (path / "metadata" / "00000-of-a-crash.metadata.json").write_text("{}")
    assert find_table(path) is None
    assert append(path, Batch("q", 0), ["b"], "iceberg")
    assert lines_of(path) == ["b"]


def test_old_versions_of_iceberg_and_their_files_are_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        append(path, Batch("q", number), [str(number)], "iceberg")
    write(path, ["crashed"], "iceberg")
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    assert len(list(path.glob("date=*/*.parquet"))) == 6
    monkeypatch.setattr(iceberg_table, "_KEEP_VERSIONS", timedelta(days=-1))
    monkeypatch.setattr(iceberg_table, "_KEEP_FILES_SECONDS", -1)
    tidy(path, keep_days=0, today=date(2026, 9, 21))
    assert len(list(path.glob("date=*/*.parquet"))) == 1
    assert lines_of(path) == ["0", "1", "2", "3"]
    assert not append(path, Batch("q", 3), ["3"], "iceberg")


def test_iceberg_keeps_its_files_when_it_is_reached_by_another_path(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_table, "_KEEP_VERSIONS", timedelta(days=-1))
    monkeypatch.setattr(iceberg_table, "_KEEP_FILES_SECONDS", -1)
    (path.parent / "volume").mkdir()
    (path.parent / "link").symlink_to("volume")
    by_link, by_volume = path.parent / "link" / "events", path.parent / "volume" / "events"
    large = [str(number) * 100 for number in range(100)]
    append(by_link, Batch("q", 0), large, "iceberg")
    append(by_link, Batch("q", 1), ["another day"], "iceberg", day="2026-09-22")
    write(by_link, ["crashed"], "iceberg")
    tidy(by_volume, keep_days=0, today=date(2026, 9, 21))
    assert len(list(by_volume.glob("date=*/*.parquet"))) == 2
    # A large file stays when small ones beside it are joined.
    size_bytes = max(file.stat().st_size for file in by_volume.glob("date=*/*.parquet"))
    monkeypatch.setattr(iceberg_table, "JOINED_BYTES", size_bytes)
    for number, place in ((2, by_link), (3, by_volume)):
        append(place, Batch("q", number), [f"small {number}"], "iceberg")
    for place in (by_volume, by_link):
        tidy(place, keep_days=0, today=date(2026, 9, 21))
        assert len(list(place.glob("date=*/*.parquet"))) == 3
        assert lines_of(place) == sorted([*large, "another day", "small 2", "small 3"])


def test_batches_are_committed_while_the_table_is_tidied(path: Path) -> None:
    names = [f"line {number}" for number in range(60)]
    append(path, Batch("query", 0), names[:1], "delta")
    with ThreadPoolExecutor(1) as beside:
        tidied = beside.submit(lambda: None)
        rounds = 0
        for number, name in enumerate(names[1:], start=1):
            if tidied.done():
                tidied.result()
                tidied = beside.submit(tidy, path, keep_days=0, today=date(2026, 9, 21))
                rounds += 1
            assert append(path, Batch("query", number), [name], "delta")
            assert not append(path, Batch("query", number), [name], "delta")
        tidied.result()
    assert rounds > 1
    assert lines_of(path) == sorted(names)
