"""`query`: what it answers, what it refuses, and that it sees nothing that was not named."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from millstream.cli.failure import CommandFailed
from millstream.cli.query import Answer, open_engine, select
from millstream.pipeline.outputs import table_path
from millstream.pipeline.spec import parse_spec
from millstream.warehouse.files import Batch
from millstream.warehouse.tables import commit_files, open_table
from tests.support.command_line import run_millstream
from tests.warehouse.table_cases import write_table_rows

NOBODY = "127.0.0.1:1"
MakeTopic = Callable[..., str]


@pytest.fixture
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine() as opened:
        opened.register("events", pa.table({"a": [1, 2, 3], "b": ["x", None, "y"]}))
        yield opened


def test_a_select_gives_its_columns_and_rows(engine: duckdb.DuckDBPyConnection) -> None:
    found = select(engine, "SELECT b, a FROM events WHERE a > 1 ORDER BY a", rows_max=10)
    assert found == Answer(["b", "a"], [[None, 2], ["y", 3]], is_complete=True)
    found = select(engine, "FROM events ORDER BY a", rows_max=2)
    assert found == Answer(["a", "b"], [[1, "x"], [2, None]], is_complete=False)
    assert select(engine, "FROM events WHERE a > 9", rows_max=2).rows == []


def test_values_are_those_of_json(engine: duckdb.DuckDBPyConnection) -> None:
    values = pa.table(
        {
            "d": [Decimal("1.5")],
            "e": [date(2026, 9, 21)],
            "f": pa.array([[("cpu", "1")]], pa.map_(pa.string(), pa.string())),
            "g": [b"\xff"],
            "h": [[1, None]],
        }
    )
    engine.register("kinds", values)
    [row] = select(engine, "FROM kinds", rows_max=9).rows
    assert row == [1.5, "2026-09-21", [["cpu", "1"]], "\ufffd", [1, None]]
    assert json.dumps(row)


def test_numbers_that_json_does_not_have_are_text_and_sums_of_integers_are_exact(
    engine: duckdb.DuckDBPyConnection,
) -> None:
    sql = "SELECT 'nan'::DOUBLE, '-inf'::FLOAT, sum(a), sum(a + 9007199254740992) FROM events"
    assert select(engine, sql, rows_max=9).rows == [["nan", "-inf", 6, 27021597764222982]]


@pytest.mark.parametrize("text", ["'infinity'::TIMESTAMP", "DATE '290000-01-01'"])
def test_a_time_that_python_does_not_have_is_said(
    engine: duckdb.DuckDBPyConnection, text: str
) -> None:
    with pytest.raises(CommandFailed, match="CAST"):
        select(engine, f"SELECT {text}", rows_max=9)
    found = select(engine, f"SELECT CAST({text} AS VARCHAR)", rows_max=9)
    assert found.rows in ([["infinity"]], [["290000-01-01"]])


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELECT 1; SELECT 2",
        "CREATE TABLE t AS SELECT 1",
        "COPY events TO 'here.csv'",
        "ATTACH 'here.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ],
)
def test_only_one_select_is_accepted(engine: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(CommandFailed, match="one SELECT"):
        select(engine, sql, rows_max=9)


def test_no_file_and_no_variable_is_seen(engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    hidden = pa.table({"a": [1]})
    assert hidden.num_rows == 1
    for source in (f"'{secret}'", f"read_csv('{secret}')", f"read_text('{secret}')", "hidden"):
        with pytest.raises(CommandFailed):
            select(engine, f"SELECT * FROM {source}", rows_max=9)


def test_what_is_wrong_with_a_query_is_told(engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(CommandFailed, match="syntax error"):
        select(engine, "SELEC 1", rows_max=9)
    with pytest.raises(CommandFailed, match="nothing_here"):
        select(engine, "SELECT nothing_here FROM events", rows_max=9)


@pytest.mark.slow
def test_topics_are_tables(kafka_bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(10):
        producer.produce(topic, f'{{"n": {number}}}', key=f"k{number}", partition=number % 2)
    producer.flush(30)
    sql = f'SELECT partition, count(*) AS n, min("offset") AS first FROM "{topic}"'
    sql += " GROUP BY 1 ORDER BY 1"
    done = run_millstream("query", sql, "-t", topic, "--csv", bootstrap=kafka_bootstrap)
    assert done.exit_code == 0, done.errors
    assert done.output == "partition,n,first\n0,5,0\n1,5,0\n"
    done = run_millstream(
        "query",
        f'FROM "{topic}"',
        "-t",
        topic,
        "--records",
        "1",
        "--json",
        bootstrap=kafka_bootstrap,
    )
    rows = json.loads(done.output)["rows"]
    assert [(row["key"], row["value"]) for row in rows] == [("k8", '{"n": 8}'), ("k9", '{"n": 9}')]


def test_what_to_query_must_be_named(tmp_path: Path) -> None:
    done = run_millstream("query", "SELECT 1", bootstrap=NOBODY)
    assert (done.exit_code, "--pipeline FILE or --topic TOPIC" in done.errors) == (2, True)
    file = tmp_path / "p.toml"
    file.write_text("home = 'nowhere'\n")
    done = run_millstream("query", "SELECT 1", "--pipeline", str(file), bootstrap=NOBODY)
    assert (done.exit_code, "there are no tables in" in done.errors) == (1, True)


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_tables_of_a_pipeline_are_read_in_their_current_version(
    tmp_path: Path, table_format: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(f"home = 'home'\n[warehouse]\nformat = '{table_format}'\n")
    path = table_path(parse_spec(file.read_text(), folder=tmp_path), "events")
    schema = pa.schema(
        [
            ("event_time", pa.timestamp("us", tz="UTC")),
            ("service", pa.string()),
            ("fields", pa.map_(pa.string(), pa.string())),
            ("date", pa.string()),
        ]
    )
    row = {"event_time": datetime(2026, 9, 21, 13, 59, 58, tzinfo=UTC), "date": "2026-09-21"}
    for batch in range(2):
        table = open_table(path, schema, table_format)
        rows = [{**row, "service": "cart", "fields": [("cpu", "0.5")]}]
        files = write_table_rows(path, rows, schema, table_format)
        commit_files(table, Batch("q", batch), files)
    sql = "SELECT service, count(*) AS n, min(fields['cpu']) AS cpu, max(event_time) AS at"
    sql += " FROM events GROUP BY ALL"
    done = run_millstream("query", sql, "--pipeline", str(file), "--json", bootstrap=NOBODY)
    assert done.exit_code == 0, done.errors
    [found] = json.loads(done.output)["rows"]
    assert (found["service"], found["n"], found["cpu"]) == ("cart", 2, "0.5")
    assert datetime.fromisoformat(found["at"]) == row["event_time"]
    sql = "SELECT date_trunc('hour', event_time AT TIME ZONE 'UTC') AS hour FROM events LIMIT 1"
    done = run_millstream("query", sql, "--pipeline", str(file), bootstrap=NOBODY)
    assert done.output == "hour\n2026-09-21T13:00:00\n", done.errors
