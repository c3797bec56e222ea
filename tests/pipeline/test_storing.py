"""A micro-batch in one pass: files, dead letters and counts from the same rows."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from millstream.pipeline.spec import Spec
from millstream.warehouse import EVENTS, RAW
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.test_parsing import NOW, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

LINES = [
    b"\xffbad",
    b"ts=2026-09-21T13:59:01Z host=db-1 cpu=0.5",
    b"ts=2099-09-21T13:59:01Z host=db-1 cpu=0.5",
    b"ts=2026-09-20T23:59:01Z host=db-1 cpu=0.5",
]


@pytest.fixture
def records(spark: "SparkSession") -> "DataFrame":
    rows = [
        (b"web-1/log", bytearray(line), "logs", 3, 42 + number, NOW)
        for number, line in enumerate(LINES)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def spec_of(make_spec: MakeSpec, table_format: str) -> Spec:
    return make_spec(f'[parse]\nlate = "2 days"\n[warehouse]\nformat = "{table_format}"')


def test_dead_letters_carry_the_line_and_the_reason(
    records: "DataFrame", make_spec: MakeSpec
) -> None:
    from millstream.pipeline.dead_letters import records_of
    from millstream.pipeline.storing import write_batch

    spec = spec_of(make_spec, "none")
    bad, ahead = sorted(
        records_of(write_batch(records, spec, {}, "batch-0")).collect(), reverse=True
    )
    headers = {header.key: bytes(header.value).decode() for header in bad.headers}
    assert bytes(bad.key) == b"web-1/log"
    assert bytes(bad.value) == LINES[0]
    assert bytes(ahead.value) == LINES[2]
    assert headers["reason"] == "unparsable"
    assert headers["detail"] == "not UTF-8"
    assert (headers["topic"], headers["partition"], headers["offset"]) == ("logs", "3", "42")
    assert (headers["record_time"], headers["event_time"]) == ("2026-09-21 14:00:00", "")
    headers = {header.key: bytes(header.value).decode() for header in ahead.headers}
    assert headers["event_time"] == "2099-09-21 13:59:01"


def test_every_line_is_counted_and_stands_in_the_file_of_its_day(
    records: "DataFrame", make_spec: MakeSpec, tmp_path: Path
) -> None:
    from millstream.pipeline.storing import read_stored, write_batch

    folders = {RAW: tmp_path / "raw", EVENTS: tmp_path / "events"}
    stored = read_stored(write_batch(records, spec_of(make_spec, "delta"), folders, "batch-0"))
    assert stored.counts == {"good": 2, "unparsable": 1, "ahead": 1}
    rows = {
        table: sorted(
            (file.date, number)
            for file in stored.files[table]
            for number in pq.read_table(folders[table] / file.path)["offset"].to_pylist()
        )
        for table in folders
    }
    # Lines by the day of their record; events by their own, unless that is not believed.
    assert rows[RAW] == [("2026-09-21", 42 + number) for number in range(4)]
    assert rows[EVENTS] == [("2026-09-20", 45), ("2026-09-21", 43), ("2026-09-21", 44)]
    assert sum(file.rows for file in stored.files[EVENTS]) == 3


def test_a_batch_without_lines_tells_its_query(records: "DataFrame", make_spec: MakeSpec) -> None:
    from millstream.pipeline.storing import read_stored, write_batch

    spec = spec_of(make_spec, "none")
    stored = read_stored(write_batch(records.limit(0), spec, {}, "batch-0"))
    assert (stored.query_id, stored.counts) == ("by hand", {})


@pytest.mark.parametrize("table_format", ["delta", "parquet", "iceberg"])
def test_a_batch_fits_the_tables_that_were_made_for_it(
    records: "DataFrame", make_spec: MakeSpec, tmp_path: Path, table_format: str
) -> None:
    from millstream.pipeline.storing import read_stored, write_batch
    from millstream.warehouse.files import Batch
    from millstream.warehouse.tables import TABLE_SCHEMAS, commit_batch, find_table

    folders = {RAW: tmp_path / "raw", EVENTS: tmp_path / "events"}
    spec = spec_of(make_spec, table_format)
    stored = read_stored(write_batch(records, spec, folders, "batch-0"))
    for table, folder in folders.items():
        batch = Batch("query", 0)
        schema = TABLE_SCHEMAS[table]
        assert commit_batch(folder, schema, table_format, batch, stored.files[table])
        found = find_table(folder)
        assert found is not None
        assert found.dataset().count_rows() == {RAW: 4, EVENTS: 3}[table]
