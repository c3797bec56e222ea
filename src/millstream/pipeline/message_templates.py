"""The messages of lines, as templates are made from them, without Spark.

A line that cannot be parsed is a message itself: what a log says in a format that nobody
declared is still worth counting.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from millstream.lines.parser import LineParser
from millstream.lines.schema import TIME
from millstream.pipeline.parsing import line_rules
from millstream.pipeline.spec import Spec

_BATCH_LINES = 10_000


def messages_of(
    spec: Spec, records: Iterable[tuple[bytes | None, bytes | None, int]]
) -> Iterator[pa.StringArray]:
    """The message of each record (key, value, time in milliseconds), null where it has none."""
    parser = LineParser(line_rules(spec), ["message", "detail"])
    batch: list[tuple[bytes | None, bytes | None, int]] = []
    for record in records:
        batch.append(record)
        if len(batch) == _BATCH_LINES:
            yield _messages(parser, batch)
            batch = []
    if batch:
        yield _messages(parser, batch)


def _messages(
    parser: LineParser, batch: list[tuple[bytes | None, bytes | None, int]]
) -> pa.StringArray:
    keys, values, times_ms = zip(*batch, strict=True)
    count = len(batch)
    records = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["lines"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([time_ms * 1000 for time_ms in times_ms], TIME),
        }
    )
    events = parser.parse(records)
    whole = pa.array([_as_text(value) for value in values], pa.string())
    is_parsed = pc.is_null(events.column("detail"))
    return pc.if_else(is_parsed, events.column("message"), whole)


def _as_text(value: bytes | None) -> str | None:
    return value.decode(errors="replace") if value else None
