"""Tables in a bucket are what they are in a directory, by a real S3 protocol.

Covers warehouse/locations.py, warehouse/delta.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.warehouse.files import Batch, TableChanged
from millstream.warehouse.locations import as_text, is_in_bucket, location_of
from millstream.warehouse.reading import current_version, files_dataset, table_dataset
from millstream.warehouse.tables import DELTA, commit_batch, commit_files, find_table, open_table
from tests.support.s3 import BUCKET, S3Server
from tests.warehouse.table_cases import SCHEMA, append, lines_of, write


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
def table(server: S3Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{request.node.name}/events"


def test_a_location_is_a_folder_or_an_address() -> None:
    assert location_of("s3://a/b") == "s3://a/b"
    assert location_of("a/b") == Path("a/b")
    assert is_in_bucket("s3://a/b")
    assert not is_in_bucket(Path("s3://a/b"))
    assert location_of(as_text(Path("a"))) == Path("a").absolute()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_batch_is_there_once_however_often_it_is_committed(table: str) -> None:
    assert find_table(table) is None
    assert append(table, Batch("q", 0), ["a", "b"], DELTA)
    assert not append(table, Batch("q", 0), ["a", "b"], DELTA)
    assert append(table, Batch("q", 1), ["c"], DELTA, day="2026-09-22")
    assert lines_of(table) == ["a", "b", "c"]
    found = find_table(table)
    assert found is not None
    assert (found.last_batch("q"), found.days()) == (1, ["2026-09-21", "2026-09-22"])
    # Both ways to read it, as tasks and as other programs do.
    assert files_dataset(table, current_version(table)).count_rows() == 3
    assert table_dataset(table).count_rows() == 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_two_drivers_one_is_refused_and_tries_again(table: str) -> None:
    files = write(table, ["a"], DELTA)
    first = open_table(table, SCHEMA, DELTA)
    second = open_table(table, SCHEMA, DELTA)
    assert commit_files(first, Batch("q", 0), files)
    with pytest.raises(TableChanged):
        commit_files(second, Batch("q", 0), files)
    assert not commit_batch(table, SCHEMA, DELTA, Batch("q", 0), files)
    assert lines_of(table) == ["a"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_days_are_replaced_files_joined_and_old_days_dropped(table: str) -> None:
    for number, day in enumerate(("2026-09-20", "2026-09-21", "2026-09-21")):
        append(table, Batch("q", number), [f"line {number}"], DELTA, day=day)
    found = find_table(table)
    assert found is not None
    found.tidy(oldest_day="2026-09-21")
    assert lines_of(table) == ["line 1", "line 2"]
    assert len(current_version(table).files) == 1
    again = find_table(table)
    assert again is not None
    again.replace_days("2026-09-21", write(table, ["other"], DELTA))
    assert lines_of(table) == ["other"]
