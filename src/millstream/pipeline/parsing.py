"""Parses lines into events in Spark: `millstream.lines` does it, a batch at a time, in workers.

Lines of a topic are parsed by the task that reads them (`line_pass`). Lines that come from
elsewhere, such as a table, are parsed here, on their way through Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from millstream.lines.parser import EVENT_SCHEMA, LineParser, LineRules
from millstream.pipeline.spec import Spec

EVENT_COLUMNS: Final = tuple(EVENT_SCHEMA.names)
# The input of an event.
RECORD_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
_UTC: Final = pa.timestamp("us", tz="UTC")


def line_rules(spec: Spec) -> LineRules:
    """The part of a pipeline file that decides how a line is parsed."""
    return LineRules(
        sources=spec.sources,
        timezone=spec.timezone,
        mask=spec.mask,
        salt=spec.salt,
        gauges=(*spec.gauges, *spec.counters),
        ahead_ms=spec.ahead_ms,
        late_ms=spec.late_ms,
    )


def event_types(columns: Sequence[str]) -> StructType:
    return from_arrow_schema(pa.schema([EVENT_SCHEMA.field(name) for name in columns]))


def parse_events(
    records: DataFrame, spec: Spec, columns: Sequence[str] = EVENT_COLUMNS
) -> DataFrame:
    """One row for each record of the source `millstream`, with what was parsed from it."""
    parsing = Parsing(line_rules(spec), tuple(columns))
    return records.select(*RECORD_COLUMNS).mapInArrow(parsing.run, event_types(columns))


@dataclass(frozen=True, slots=True)
class Parsing:
    """Runs in a task; everything in it is sent there."""

    rules: LineRules
    columns: tuple[str, ...]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parser = LineParser(self.rules, self.columns)
        for batch in batches:
            yield parser.parse(_in_utc(batch))


def _in_utc(records: pa.RecordBatch) -> pa.RecordBatch:
    """Spark names the session's time zone in the type; the instants are the same."""
    index = records.schema.get_field_index("timestamp")
    return records.set_column(index, "timestamp", records.column(index).cast(_UTC))
