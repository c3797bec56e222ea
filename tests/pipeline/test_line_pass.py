"""A micro-batch in one pass: files, dead letters, counts and partial results of the same lines.

Covers pipeline/line_pass.py, pipeline/dead_letters.py, pipeline/batch_results.py.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.pipeline import partials
from millstream.pipeline.batch_results import BatchResults, Reported, read_reports
from millstream.pipeline.kept_state import KeptState
from millstream.pipeline.line_pass import LinePass, PassRules, sink_options
from millstream.pipeline.progress import Watched
from millstream.pipeline.queries import BACKFILL, LINES, open_results, pass_rules
from millstream.pipeline.spec import Spec
from millstream.pipeline.state_files import files_of
from millstream.spark.exactly_once import BatchContext, CarriedRows
from millstream.warehouse import EVENTS, RAW
from millstream.warehouse.files import Batch
from millstream.warehouse.tables import TABLE_SCHEMAS, commit_batch, find_table
from tests.pipeline.conftest import MakeSpec

NOW = datetime(2026, 9, 21, 14, 0, tzinfo=UTC)
LINES_SENT = [
    b"\xffbad",
    b"ts=2026-09-21T13:59:01Z host=db-1 cpu=0.5",
    b"ts=2099-09-21T13:59:01Z host=db-1 cpu=0.5",
    b"ts=2026-09-20T23:59:01Z host=db-1 cpu=0.5",
]


def records(lines: list[bytes], *, at: object = NOW) -> Iterator[pa.RecordBatch]:
    """`at`: when all of them were written, as Arrow takes it."""
    rows = [
        {"key": b"web-1/log", "value": line, "topic": "logs", "partition": 3, "offset": 42 + number}
        for number, line in enumerate(lines)
    ]
    schema = pa.schema(
        [
            *(("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())),
            *(("partition", pa.int32()), ("offset", pa.int64())),
            ("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    yield pa.RecordBatch.from_pylist([{**row, "timestamp": at} for row in rows], schema=schema)


def spec_of(make_spec: MakeSpec, table_format: str) -> Spec:
    return make_spec(
        f'name = "n"\n[parse]\nlate = "2 days"\n[warehouse]\nformat = "{table_format}"'
    )


def reported(spec: Spec, name: str, *tasks: list[bytes], at: object = NOW) -> Reported:
    """What the driver reads of these tasks."""
    sink = replace(sink_options(spec.bootstrap), query_id="q", batch_id=5)
    # A task of the source gets its rules as text.
    rules = PassRules.from_json(pass_rules(spec, name).to_json())
    batches = [
        batch for lines in tasks for batch in LinePass(rules, sink).run(records(lines, at=at), 1000)
    ]
    return read_reports(pa.Table.from_batches(batches), 5)


def test_rules_survive_their_journey_to_a_task(make_spec: MakeSpec) -> None:
    for name in (LINES, BACKFILL):
        rules = pass_rules(make_spec(), name)
        assert PassRules.from_json(rules.to_json()) == rules


def test_dead_letters_carry_the_line_and_the_reason(make_spec: MakeSpec) -> None:
    [message] = reported(spec_of(make_spec, "none"), LINES, LINES_SENT).letters
    assert isinstance(message, CarriedRows)
    assert message.context == BatchContext("q", "", 5)
    bad, ahead = pa.ipc.open_stream(message.rows).read_all().to_pylist()
    assert (bad["topic"], bad["key"], bad["value"]) == ("n.dead", b"web-1/log", LINES_SENT[0])
    headers = {header["key"]: header["value"].decode() for header in bad["headers"]}
    assert headers == {
        "reason": "unparsable",
        "detail": "not UTF-8",
        "topic": "logs",
        "partition": "3",
        "offset": "42",
        "record_time": "2026-09-21 14:00:00",
        "event_time": "",
    }
    headers = {header["key"]: header["value"].decode() for header in ahead["headers"]}
    assert ahead["value"] == LINES_SENT[2]
    assert (headers["reason"], headers["event_time"]) == ("ahead", "2099-09-21 13:59:01")


def test_every_line_is_counted_and_stands_in_the_file_of_its_day(make_spec: MakeSpec) -> None:
    spec = spec_of(make_spec, "delta")
    found = reported(spec, BACKFILL, LINES_SENT)
    assert found.counts == {"good": 2, "unparsable": 1, "ahead": 1}
    assert found.parts.tables == []
    rows = {
        table: sorted(
            (file.date, number)
            for file in found.files[table]
            for number in pq.read_table(spec.home / "tables" / table / file.path)[
                "offset"
            ].to_pylist()
        )
        for table in (RAW, EVENTS)
    }
    # Lines by the day of their record; events by their own, unless that is not believed.
    assert rows[RAW] == [("2026-09-21", 42 + number) for number in range(4)]
    assert rows[EVENTS] == [("2026-09-20", 45), ("2026-09-21", 43), ("2026-09-21", 44)]
    assert sum(file.rows for file in found.files[EVENTS]) == 3


def test_tasks_are_read_as_one_batch(make_spec: MakeSpec) -> None:
    spec = spec_of(make_spec, "none")
    found = reported(spec, LINES, LINES_SENT[:2], LINES_SENT[2:], [])
    assert found.counts == {"good": 2, "unparsable": 1, "ahead": 1}
    assert (found.context, found.parts.now_ms) == (BatchContext("q", "", 5), 1000)
    newest = datetime(2026, 9, 21, 13, 59, 1, tzinfo=UTC)
    assert found.parts.newest_us == newest.timestamp() * 1_000_000
    windows = partials.from_bytes(found.parts.tables)[partials.WINDOWS]
    counts = [(row["output"], row["name"], row["count"]) for row in windows.to_pylist()]
    assert sorted(counts) == [("host", "db-1", 1)] * 2 + [("input", "all", 1)] * 2
    # The order in which tasks end changes nothing.
    assert reported(spec, LINES, [], LINES_SENT[2:], LINES_SENT[:2]).parts == found.parts


class NoTasks:
    """A micro-batch that nothing was read for."""

    def toArrow(self) -> pa.Table:
        kinds = [("kind", pa.string()), ("name", pa.string()), ("value", pa.binary())]
        return pa.schema(kinds).empty_table()


def test_a_batch_without_tasks_is_counted_and_writes_nothing(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    assert read_reports(NoTasks().toArrow(), 0).context is None
    spec = make_spec()
    state = KeptState(files_of(tmp_path / "state"), lambda: open_results(spec))
    watched = Watched()
    results = BatchResults(spec, watched, state=state, folders={})
    for number in range(3):
        results.write(NoTasks(), number)  # type: ignore[arg-type]
    assert watched.get().batch == 2
    assert len(list((tmp_path / "state").iterdir())) == 3


@pytest.mark.parametrize("table_format", ["delta", "parquet", "iceberg"])
def test_a_batch_fits_the_tables_that_were_made_for_it(
    make_spec: MakeSpec, table_format: str
) -> None:
    spec = spec_of(make_spec, table_format)
    found = reported(spec, BACKFILL, LINES_SENT)
    for table in (RAW, EVENTS):
        folder: Path = spec.home / "tables" / table
        schema = TABLE_SCHEMAS[table]
        assert commit_batch(folder, schema, table_format, Batch("query", 0), found.files[table])
        made = find_table(folder)
        assert made is not None
        assert made.dataset().count_rows() == {RAW: 4, EVENTS: 3}[table]


@pytest.mark.parametrize(("year", "day"), [(-1199, "0001-01-01"), (12_000, "9999-12-31")])
@pytest.mark.parametrize("table_format", ["delta", "parquet", "iceberg"])
def test_records_of_a_time_that_no_calendar_has_are_in_its_first_or_last_day(
    make_spec: MakeSpec, table_format: str, year: int, day: str
) -> None:
    spec = spec_of(make_spec, table_format)
    at_us = (year - 1970) * 31_556_952 * 1_000_000
    found = reported(spec, BACKFILL, LINES_SENT, at=at_us)
    assert {file.date for table in (RAW, EVENTS) for file in found.files[table]} == {day}
    for table in (RAW, EVENTS):
        folder: Path = spec.home / "tables" / table
        schema = TABLE_SCHEMAS[table]
        assert commit_batch(folder, schema, table_format, Batch("query", 0), found.files[table])
        made = find_table(folder)
        assert made is not None
        assert made.days() == [day]
        [year_kept] = {at.year for at in made.dataset().to_table()["record_time"].to_pylist()}
        assert f"{year_kept:04}" == day[:4]


def test_what_a_task_says_is_plain_json(make_spec: MakeSpec) -> None:
    rules = json.loads(pass_rules(make_spec(), LINES).to_json())
    assert rules["results"]["funnel"] == ["/product*", "/cart", "/checkout", "/thanks"]
