"""Spark, Polars and DuckDB read the same rows of a table that went through everything.

Covers warehouse.
"""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pytest

from millstream.spark import read_table, table_dataset
from millstream.warehouse.files import Batch
from millstream.warehouse.tables import commit_files, open_table, tidy
from tests.warehouse.table_cases import SCHEMA, append, write, write_table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("delta", "parquet", "iceberg")
WIDER = SCHEMA.append(pa.field("host", pa.string())).append(
    pa.field("fields", pa.map_(pa.string(), pa.string()))
)
AT = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[str, datetime, str, str | None]


@pytest.fixture(params=FORMATS)
def table_format(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def path(tmp_path: Path, table_format: str) -> Path:
    """Five batches, joined; a column added; another batch; a commit that never happened."""
    path = tmp_path / "events"
    for number in range(5):
        append(path, Batch("q", number), [str(number)], table_format)
    append(path, Batch("q", 5), ["another day"], table_format, day="2026-09-22")
    tidy(path, keep_days=0, today=date(2026, 9, 22))
    row: list[dict[str, object]] = [
        {"line": "6", "at": 0, "date": "2026-09-21", "host": "web-1", "fields": [("a", "b")]}
    ]
    files = write_table_rows(path, row, WIDER, table_format)
    commit_files(open_table(path, WIDER, table_format), Batch("q", 6), files)
    append(path, Batch("q", 7), ["old", "again"], table_format)
    write(path, ["crashed before its commit"], table_format)
    return path


EXPECTED: list[Row] = sorted(
    [
        *((str(n), AT, "2026-09-21", None) for n in range(5)),
        ("another day", AT, "2026-09-22", None),
        ("6", AT, "2026-09-21", "web-1"),
        *((line, AT, "2026-09-21", None) for line in ("old", "again")),
    ],
    key=str,
)


def in_order(rows: list[dict[str, Any]]) -> list[Row]:
    return sorted(((r["line"], r["at"], r["date"], r["host"]) for r in rows), key=str)


def test_polars_reads_it_by_itself(path: Path, table_format: str) -> None:
    if table_format == "delta":
        found = polars.read_delta(str(path))
    else:
        found = polars.scan_pyarrow_dataset(table_dataset(path)).collect()
    assert in_order(found.to_dicts()) == EXPECTED


def test_duckdb_reads_it_through_an_arrow_dataset(path: Path) -> None:
    events = table_dataset(path)
    with duckdb.connect() as connection:
        connection.register("events", events)
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql("SELECT * FROM events").to_arrow_table()
        assert in_order(found.to_pylist()) == EXPECTED
        [[count]] = connection.execute(
            "SELECT count(*) FROM events WHERE date = '2026-09-22'"
        ).fetchall()
    assert count == 1


@pytest.mark.slow
def test_spark_reads_it(shared_spark: "SparkSession", path: Path) -> None:
    spark = shared_spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = read_table(spark, path).toArrow().to_pylist()
    assert in_order(found) == EXPECTED
    assert read_table(spark, path).where("date = '2026-09-22'").count() == 1
    # What the directory has is something else.
    everything = spark.read.parquet(*map(str, path.glob("date=*"))).count()
    assert everything > len(EXPECTED)
