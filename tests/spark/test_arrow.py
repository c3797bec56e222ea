"""Record batches become the Arrow batches that Spark expects, column by column."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from millstream.model import Codec, TimestampType, TopicPartition
from millstream.records.batch import CRC_START, HEADER_BYTES, BatchView
from millstream.records.builder import build_batch
from millstream.records.checksum import crc32c
from millstream.records.records import Record
from millstream.spark import arrow
from millstream.spark.arrow import to_arrow
from millstream.spark.failure import SourceError
from millstream.spark.fetching import Part
from millstream.spark.layout import COLUMNS, HEADERS_COLUMN, Layout
from millstream.spark.source import read_schema

PARTITION = TopicPartition("orders", 3)
EVERY = Layout((*COLUMNS, HEADERS_COLUMN))


def batch_of(*records: Record, **fields: object) -> BatchView:
    built = build_batch(list(records), base_offset=records[0].offset, **fields)
    return BatchView(memoryview(built))


def record(offset: int, value: bytes | None = b"v", **fields: object) -> Record:
    return Record(
        **{"offset": offset, "timestamp_ms": 1_000, "key": None, "value": value, **fields}
    )


def rows_of(
    batches: list[BatchView], from_offset: int = 0, upto_offset: int = 1 << 60
) -> list[dict[str, object]]:
    parts = [Part(from_offset, batches)]
    given = to_arrow(parts, PARTITION, upto_offset=upto_offset, layout=EVERY)
    return [row for each in given for row in each.to_pylist()]


def test_every_column_is_there() -> None:
    [row] = rows_of([batch_of(record(7, b"v", key=b"k", headers=[("h", b"x"), ("h", None)]))])
    assert row["timestamp"].timestamp() == 1.0
    row.pop("timestamp")
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
    }


def test_headers_are_null_where_a_record_has_none() -> None:
    rows = rows_of([batch_of(record(0), record(1, headers=[("a", b"")]), record(2))])
    assert [row["headers"] for row in rows] == [None, [{"key": "a", "value": b""}], None]


def test_nulls_are_not_empty_strings() -> None:
    rows = rows_of([batch_of(record(0, None, key=b""), record(1, b""))])
    assert [(row["key"], row["value"]) for row in rows] == [(b"", None), (None, b"")]


def test_the_schema_is_exactly_what_spark_checks_against() -> None:
    declared = to_arrow_schema(read_schema({"includeHeaders": "true"}), timezone="UTC")
    [found] = to_arrow([Part(0, [batch_of(record(0))])], PARTITION, upto_offset=9, layout=EVERY)
    assert declared.equals(found.schema)
    found.validate(full=True)


@pytest.mark.parametrize("codec", list(Codec))
def test_only_offsets_of_the_range_come_out(codec: Codec) -> None:
    batches = [
        batch_of(*(record(offset) for offset in range(first, first + 10)), codec=codec)
        for first in (0, 10, 20)
    ]
    assert [row["offset"] for row in rows_of(batches, 5, 25)] == list(range(5, 25))


def test_time_of_append_is_told_apart_from_time_of_creation() -> None:
    rows = rows_of(
        [
            batch_of(record(0)),
            batch_of(record(1), timestamp_type=TimestampType.LOG_APPEND_TIME),
        ]
    )
    assert [row["timestampType"] for row in rows] == [0, 1]


def test_a_time_out_of_sparks_range_does_not_stop_the_read() -> None:
    layout = Layout(("timestamp",))
    batch = batch_of(record(0, timestamp_ms=2**62), record(1, timestamp_ms=-1))
    [found] = to_arrow([Part(0, [batch])], PARTITION, upto_offset=9, layout=layout)
    assert found.column(0).cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000, -1000]


def test_a_damaged_batch_is_named() -> None:
    built = build_batch([record(41)], base_offset=41)
    built[-1] ^= 1
    with pytest.raises(SourceError, match="offset 41"):
        rows_of([BatchView(memoryview(built))])


def test_what_nobody_can_read_is_skipped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    built = build_batch([record(41), record(42)], base_offset=41)
    # A record of less than nothing, under a right checksum.
    built[HEADER_BYTES] = 1
    built[17:CRC_START] = crc32c(built[CRC_START:]).to_bytes(4, "big")
    batches = [batch_of(record(40)), BatchView(memoryview(built)), batch_of(record(43))]
    assert [row["offset"] for row in rows_of(batches)] == [40, 43]
    assert "offsets 41 to 42: skipped" in caplog.text


def test_arrow_batches_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ROWS_MAX", 15)
    batches = [batch_of(*(record(n) for n in range(first, first + 10))) for first in (0, 10, 20)]
    found = to_arrow([Part(0, batches)], PARTITION, upto_offset=99, layout=EVERY)
    assert [each.num_rows for each in found] == [20, 10]


def test_a_part_may_be_overwritten_when_the_next_is_asked_for() -> None:
    buffer = bytearray(build_batch([record(0, b"one"), record(1, b"two")], base_offset=0))

    def parts() -> Iterator[Part]:
        yield Part(1, [BatchView(memoryview(buffer))])
        again = build_batch([record(2, b"six"), record(3, b"ten")], base_offset=2)
        buffer[:] = again
        yield Part(2, [BatchView(memoryview(buffer))])

    found = list(to_arrow(parts(), PARTITION, upto_offset=3, layout=EVERY))
    rows = [row for each in found for row in each.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(1, b"two"), (2, b"six")]
