"""`millstream query`: SQL over the tables of a pipeline and over topics, by DuckDB.

Tables are read in their current version, topics up to the end that they have when the command
starts. The engine has no access to files or to the network, and only SELECT is accepted: a query
sees what the command line names and nothing else.
"""

import csv
import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.names import TOPIC
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.cli.pipeline_file import load_file

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_TABLES: Final = ("events", "raw")
_TAKEN_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    columns: list[str]
    rows: list[list[JsonValue]]
    # False if there are more rows than were asked for.
    is_complete: bool


@click.command("query")
@click.argument("sql")
@click.option(
    "--pipeline",
    "pipeline_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Query the tables of this pipeline: events and raw.",
)
@click.option(
    "-t", "--topic", "topics", multiple=True, type=TOPIC, help="Query this topic as a table."
)
@click.option(
    "--records",
    "records_max",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Of a topic, the last records of each partition.",
)
@click.option(
    "--rows",
    "rows_max",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Print at most this many rows.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
@bootstrap_option
def query(
    sql: str,
    pipeline_file: Path | None,
    topics: tuple[str, ...],
    records_max: int,
    rows_max: int,
    as_csv: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Run a SELECT over the tables of a pipeline, or over topics, with DuckDB.

    A topic has the columns partition, offset, timestamp, key and value; key and value are text.
    A topic whose name is not a word needs quotes: SELECT count(*) FROM "site.windows".

    Example: millstream query "SELECT service, count(*) FROM events GROUP BY 1" --pipeline site.toml
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    _check_installed()
    if pipeline_file is None and not topics:
        raise click.UsageError("name what to query, by --pipeline FILE or --topic TOPIC")
    with open_engine() as engine:
        if pipeline_file is not None:
            _add_tables(engine, pipeline_file)
        for topic in topics:
            engine.register(topic, _topic_table(topic, records_max, bootstrap))
        answer = select(engine, sql, rows_max=rows_max)
    _print(answer, as_csv=as_csv, as_json=as_json)


def _check_installed() -> None:
    missing = [name for name in ("duckdb", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"{' and '.join(missing)} not installed: pip install 'millstream[query]'"
        )


def open_engine() -> "duckdb.DuckDBPyConnection":
    """In memory, and shut in: it reads only what is registered."""
    import duckdb

    engine = duckdb.connect(":memory:")
    # Otherwise a name in a query could be a variable of this program.
    engine.execute("SET python_enable_replacements = false")
    engine.execute("SET enable_external_access = false")
    engine.execute("SET lock_configuration = true")
    return engine


def select(engine: "duckdb.DuckDBPyConnection", sql: str, *, rows_max: int) -> Answer:
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
        if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
            raise CommandFailed("a query is one SELECT; nothing can be changed here")
        reader: pa.RecordBatchReader = engine.sql(sql).to_arrow_reader(_TAKEN_MAX)
        names = list(reader.schema.names)
        rows: list[list[JsonValue]] = []
        for batch in reader:
            columns = [[_plain(each) for each in column.to_pylist()] for column in batch.columns]
            rows += [list(row) for row in zip(*columns, strict=True)]
            if len(rows) > rows_max:
                return Answer(names, rows[:rows_max], is_complete=False)
    except duckdb.Error as wrong:
        raise CommandFailed(str(wrong)) from None
    except OverflowError:
        raise CommandFailed(
            "a time is not between the years 1 and 9999; CAST(... AS VARCHAR) shows it"
        ) from None
    return Answer(names, rows, is_complete=True)


def _add_tables(engine: "duckdb.DuckDBPyConnection", file: Path) -> None:
    from millstream.pipeline.outputs import table_path
    from millstream.warehouse.tables import find_table

    spec = load_file(file)
    found = {name: find_table(table_path(spec, name)) for name in _TABLES}
    if not any(found.values()):
        place = spec.tables_location or spec.home / "tables"
        raise CommandFailed(f"there are no tables in {place}; `millstream pipeline run` makes them")
    for name, table in found.items():
        if table is not None:
            engine.register(name, table.dataset())


def _topic_table(topic: str, records_max: int, bootstrap: str) -> "pa.Table":
    import pyarrow as pa

    from millstream.cli.topic_view import require_topic
    from millstream.cli.transfer import open_reading
    from millstream.client.start_position import parse_range

    require_topic(bootstrap, topic)
    span = parse_range(f"-{records_max}", now=datetime.now(UTC))
    records = []
    with closing(open_reading(bootstrap, topic, span, is_bounded=True)) as reading:
        while not reading.is_over():
            records += reading.take(_TAKEN_MAX)
    records.sort(key=lambda record: (record.partition, record.offset))
    return pa.table(
        {
            "partition": pa.array([each.partition for each in records], pa.int32()),
            "offset": pa.array([each.offset for each in records], pa.int64()),
            # Of UTC: a time with a zone would need one of DuckDB's extensions.
            "timestamp": pa.array([each.timestamp_ms for each in records], pa.timestamp("ms")),
            "key": pa.array([_text(each.key) for each in records], pa.string()),
            "value": pa.array([_text(each.value) for each in records], pa.string()),
        }
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _plain(value: object) -> JsonValue:
    """A value as JSON has it: times in ISO, anything unknown as its text."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            # A sum of integers is one.
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case timedelta():
            return value.total_seconds()
        case bytes():
            return _text(value)
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return str(value)


def _print(answer: Answer, *, as_csv: bool, as_json: bool) -> None:
    if as_json:
        rows: list[JsonValue] = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        columns: list[JsonValue] = list(answer.columns)
        print_json({"columns": columns, "rows": rows, "is_complete": answer.is_complete})
    elif as_csv:
        writer = csv.writer(_Terminal() if sys.stdout.isatty() else sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(_cells(answer))
    else:
        print_table(answer.columns, _cells(answer))
    if not answer.is_complete:
        echo(f"only the first {counted(len(answer.rows), 'row')}; --rows allows more", err=True)


class _Terminal:
    """Where CSV is read by a person, and not by a program."""

    def write(self, text: str) -> None:
        echo(text, nl=False)


def _cells(answer: Answer) -> Iterator[list[object]]:
    """Lists and objects as JSON, the rest as it is."""
    for row in answer.rows:
        yield [json.dumps(each) if isinstance(each, list | dict) else each for each in row]
