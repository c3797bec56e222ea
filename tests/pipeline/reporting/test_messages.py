"""The messages of a period by template, beside those of the period before."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from millstream.pipeline.reporting.events import Events
from millstream.pipeline.reporting.messages import messages
from millstream.pipeline.reporting.periods import Kind, period_of
from millstream.pipeline.reporting.text import Section, as_html, as_markdown

DAY, DAY_BEFORE = "2026-09-21", "2026-09-20"
SCHEMA = pa.schema(
    [
        ("date", pa.string()),
        ("problem", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("message", pa.string()),
    ]
)


def section_of(*said: tuple[str, int, str | None]) -> Section:
    """Of lines with their day, offset and message."""
    rows = [
        {
            "date": day,
            "topic": "logs",
            "partition": 0,
            "offset": offset,
            "event_time": datetime.fromisoformat(day).replace(tzinfo=UTC),
            "message": message,
        }
        for day, offset, message in said
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    period = period_of(Kind.DAILY, date.fromisoformat(DAY), "UTC")
    return messages(Events(ds.dataset(table)), period, SCHEMA.names)


def test_new_and_vanished_templates_are_named_beside_the_most_frequent() -> None:
    section = section_of(
        (DAY_BEFORE, 1, "took 5 ms"),
        (DAY_BEFORE, 2, "cache is warm"),
        (DAY, 3, "took 6 ms"),
        (DAY, 4, "took 7 ms"),
        (DAY, 5, "cannot allocate\n512 bytes"),
        (DAY, 6, None),
        ("2026-09-22", 7, "tomorrow"),
    )
    rows = [
        (row["template"], row["messages"], row["before"], row["state"])
        for row in section.table.to_pylist()
    ]
    assert rows == [
        ("took <*> ms", 2, 1, None),
        ("cannot allocate <*> bytes", 1, 0, "new"),
        ("cache is warm", 0, 1, "vanished"),
    ]
    first, second, _ = section.table.to_pylist()
    assert (first["messages_percent"], first["sample"]) == (66.67, "took 5 ms")
    assert second["sample"] == "cannot allocate 512 bytes"
    assert "cannot allocate <*> bytes" in as_markdown("t", "n", [section])
    assert "cannot allocate &lt;*&gt; bytes" in as_html("t", "n", [section])


def test_nothing_is_new_where_nothing_was_read_before() -> None:
    [row] = section_of((DAY, 1, "a b"), (DAY, 2, "a b")).table.to_pylist()
    assert (row["messages"], row["before"], row["state"]) == (2, None, None)


def test_the_order_of_rows_in_files_makes_no_difference() -> None:
    lines = [(DAY, at, f"{name} left the room") for at, name in enumerate(["ann", "bob", "cid"])]
    assert section_of(*lines).table == section_of(*reversed(lines)).table


@pytest.mark.parametrize("columns", [[], ["topic"]])
def test_a_table_without_messages_has_none(columns: list[str]) -> None:
    period = period_of(Kind.DAILY, date.fromisoformat(DAY), "UTC")
    empty = Events(ds.dataset(pa.Table.from_pylist([], schema=SCHEMA)))
    assert messages(empty, period, columns).table.num_rows == 0
    assert section_of().table.num_rows == 0
