"""The one pass over the lines of a micro-batch, in the tasks that read them.

A task parses its lines, writes them into files of both tables, writes dead letters, and adds up
partial results. It returns little: which files there are, how many lines had which problem, and
the partial results. A task that Spark repeats writes files that no commit names, and dead letters
that no transaction commits.
"""

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    StringType,
    StructField,
    StructType,
)

from millstream.lines.parser import EVENT_SCHEMA, LineParser, LineRules
from millstream.pipeline import dead_letters, partials
from millstream.pipeline.local_time import local_days, within_years
from millstream.pipeline.partials import Gathering, Rules
from millstream.spark.exactly_once import find_context, write_exactly_once
from millstream.spark.option_table import Use
from millstream.spark.write_options import WriteOptions, parse_write_options
from millstream.warehouse import EVENTS
from millstream.warehouse.files import PARTITION, DayFiles
from millstream.warehouse.locations import location_of
from millstream.warehouse.tables import DELTA, TABLE_SCHEMAS

GOOD: Final = "good"
_UNPARSABLE: Final = "unparsable"

# Kinds of rows that a task returns. Partial results: the name of the table, and the table.
PARTIAL: Final = "partial"
# Its dead letters: what the sink's commit needs of them.
LETTERS: Final = "letters"
# The rest, as JSON.
TASK: Final = "task"
REPORT: Final = "kind string, name string, value binary"
_REPORT_SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("name", pa.string()), ("value", pa.binary())]
)
_RECORD_TYPES: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class PassRules:
    """What a task has to know; plain values, because a source's options are texts."""

    # `LineRules` as JSON.
    lines: str
    # None where only tables and dead letters are wanted.
    results: Rules | None
    # Of the tables that are wanted, by name.
    folders: Mapping[str, str]
    table_format: str
    timezone: str
    bootstrap: str
    dead_topic: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "PassRules":
        given = json.loads(text)
        results = given.pop("results")
        if results is not None:
            results = Rules(**{**results, "funnel": tuple(results["funnel"])})
        return cls(**given, results=results)


def sink_options(bootstrap: str) -> WriteOptions:
    """Of the one sink for everything that a micro-batch writes into topics."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "semantics": "exactly-once",
        "sinkName": "results",
    }
    return parse_write_options(options, _RECORD_TYPES, Use.BATCH_WRITE)


@dataclass(frozen=True, slots=True)
class LinePass:
    """Runs in a task; everything in it is sent there."""

    rules: PassRules
    sink: WriteOptions

    def run(
        self, records: Iterator[pa.RecordBatch], now_ms: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `REPORT` for the records of a task; `now_ms`: the clock of the batch."""
        context = find_context(self.sink)
        work = _Work(self.rules, f"batch-{context.batch_id}")
        letters = write_exactly_once(self.sink, work.letters(records))
        rows = [(LETTERS, "", pickle.dumps(letters)), *work.partial_rows()]
        told = {**work.told(), "query_id": context.query_id, "run_id": context.run_id}
        rows.append((TASK, "", json.dumps({**told, "now_ms": now_ms}).encode()))
        columns = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(each, field.type)
                for each, field in zip(columns, _REPORT_SCHEMA, strict=True)
            ],
            schema=_REPORT_SCHEMA,
        )


class _Work:
    """Of one task."""

    def __init__(self, rules: PassRules, name: str) -> None:
        self._rules = rules
        self._name = name
        self._parser = LineParser(LineRules.from_json(rules.lines), _columns(rules))
        self._gathering = None if rules.results is None else Gathering(rules.results)
        self._counts: Counter[str] = Counter()
        self._files: dict[str, DayFiles] = {}

    def letters(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All of the work; yields the dead letters on the way."""
        with ExitStack() as stack:
            self._files = {
                table: stack.enter_context(closing(self._open(folder)))
                for table, folder in self._rules.folders.items()
            }
            for batch in records:
                events = self._parser.parse(_with_known_years(batch))
                self._count(events)
                if self._gathering is not None:
                    self._gathering.add(events)
                for table, files in self._files.items():
                    files.write(self._rows(events, table))
                if events.column("problem").null_count < len(events):
                    dead = events.filter(pc.is_valid(events.column("problem")))
                    rules = self._rules
                    yield dead_letters.letters(dead, rules.dead_topic, rules.timezone)

    def partial_rows(self) -> list[tuple[str, str, bytes]]:
        if self._gathering is None:
            return []
        tables = self._gathering.tables().items()
        return [(PARTIAL, name, partials.to_bytes(table)) for name, table in tables if len(table)]

    # JSON of several kinds of values.
    def told(self) -> dict[str, Any]:
        return {
            "counts": dict(self._counts),
            "newest_us": None if self._gathering is None else self._gathering.newest_us,
            "files": {
                table: [asdict(file) for file in files.written()]
                for table, files in self._files.items()
            },
        }

    def _open(self, folder: str) -> DayFiles:
        has_day_inside = self._rules.table_format != DELTA
        return DayFiles(location_of(folder), name=self._name, has_day_inside=has_day_inside)

    def _count(self, events: pa.RecordBatch) -> None:
        problems = events.column("problem")
        if problems.null_count:
            self._counts[GOOD] += problems.null_count
        if problems.null_count < len(problems):
            found = pc.value_counts(problems.drop_null())
            self._counts.update({each["values"]: each["counts"] for each in found.to_pylist()})

    def _rows(self, events: pa.RecordBatch, table: str) -> pa.RecordBatch:
        times = events.column("record_time")
        if table == EVENTS:
            problems = events.column("problem")
            if problems.null_count < len(problems):
                is_parsed = pc.not_equal(pc.fill_null(problems, GOOD), _UNPARSABLE)
                events = events.filter(is_parsed)
            times = event_day_times(events)
        schema = TABLE_SCHEMAS[table]
        columns = [
            local_days(times, self._rules.timezone) if name == PARTITION else events.column(name)
            for name in schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_known_years(records: pa.RecordBatch) -> pa.RecordBatch:
    """Producers may send any timestamp. Readers fail on one that is outside of the calendar."""
    place = records.schema.get_field_index("timestamp")
    times = within_years(records.column(place))
    return records.set_column(place, pa.field("timestamp", times.type), times)


def _columns(rules: PassRules) -> tuple[str, ...]:
    wanted = set(dead_letters.NEEDED)
    if rules.results is not None:
        wanted |= set(rules.results.needed)
    for table in rules.folders:
        wanted |= set(TABLE_SCHEMAS[table].names)
    return tuple(name for name in EVENT_SCHEMA.names if name in wanted)


def event_day_times(events: pa.RecordBatch) -> pa.Array:
    """An event whose time is not trusted is stored under the day of its record: one wrong
    clock creates no extra day."""
    problems = events.column("problem")
    if problems.null_count == len(problems):
        return events.column("event_time")
    return pc.if_else(
        pc.is_null(problems), events.column("event_time"), events.column("record_time")
    )
