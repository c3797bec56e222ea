"""Turns record batches into Arrow batches, with the columns of Spark's own Kafka source.

`millstream.records` lays the records out in Arrow's format; here the buffers get their
names. Only times (milliseconds to microseconds) and the columns that are the same for
every row need new memory.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

import numpy
import pyarrow as pa

from millstream.model import TimestampType, TopicPartition
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.columns import (
    IMPLEMENTATION,
    Columns,
    ColumnsBuilder,
    unpacked_records,
)
from millstream.spark.failure import SourceError
from millstream.spark.fetching import Part
from millstream.spark.layout import HEADERS_COLUMN, Layout

log = logging.getLogger(__name__)

# An Arrow batch is passed on when it has this many rows or bytes, whichever comes first.
# Spark takes small ones as fast as large ones. Memory for large ones may be returned to the
# system after each, and new pages for the next cost more than filling them.
ROWS_MAX: Final = 16_384
BYTES_MAX: Final = 2 << 20

_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS_COLUMN: pa.list_(pa.field("element", _HEADER_TYPE)),
}
_MILLISECONDS_MAX: Final = (2**63 - 1) // 1000


def to_arrow(
    parts: Iterable[Part], partition: TopicPartition, *, upto_offset: int, layout: Layout
) -> Iterator[pa.RecordBatch]:
    """The records of all parts below an offset, as Arrow batches of a bounded size.

    A part's records are copied before the next part is requested.
    """
    schema = pa.schema([pa.field(name, TYPES[name]) for name in layout.columns])
    # One for all, which keeps its memory.
    builder = IMPLEMENTATION.ColumnsBuilder()
    for part in parts:
        for timestamp_type in _fill(builder, part, partition, upto_offset):
            columns = Columns(builder.count, *builder.take())
            yield _record_batch(columns, partition, timestamp_type, schema)


def _fill(
    builder: ColumnsBuilder, part: Part, partition: TopicPartition, upto_offset: int
) -> Iterator[TimestampType]:
    """Add a part's records; stops, with the type of their times, when they should be passed on."""
    held_bytes = 0
    held_type = TimestampType.CREATE_TIME
    for batch in part.batches:
        if not batch.crc_is_valid():
            raise _damaged(partition, batch, "its checksum is wrong")
        is_other_type = batch.timestamp_type is not held_type
        if builder.count and (
            is_other_type or builder.count >= ROWS_MAX or held_bytes >= BYTES_MAX
        ):
            yield held_type
            held_bytes = 0
        held_type = batch.timestamp_type
        try:
            records = unpacked_records(batch)
            builder.add(batch.buffer[:HEADER_BYTES], records, part.from_offset, upto_offset)
        except ValueError as error:
            # As it was stored: an earlier version accepted it. No client can read it.
            where = f"{partition}, offsets {batch.base_offset} to {batch.last_offset}"
            log.warning("%s: skipped, the records cannot be read: %s", where, error)
            continue
        held_bytes += len(records)
    if builder.count:
        yield held_type


def _damaged(partition: TopicPartition, batch: BatchView, why: str) -> SourceError:
    return SourceError(
        "UNREADABLE_RECORDS", f"{partition}, batch at offset {batch.base_offset}: {why}"
    )


def _record_batch(
    columns: Columns, partition: TopicPartition, timestamp_type: TimestampType, schema: pa.Schema
) -> pa.RecordBatch:
    count = columns.count
    arrays = []
    for name in schema.names:
        if name == "key":
            array = _strings(
                pa.binary(), count, columns.key_validity, columns.key_ends, columns.key_data
            )
        elif name == "value":
            array = _strings(
                pa.binary(), count, columns.value_validity, columns.value_ends, columns.value_data
            )
        elif name == "topic":
            array = pa.repeat(pa.scalar(partition.topic, pa.string()), count)
        elif name == "partition":
            array = pa.repeat(pa.scalar(partition.partition, pa.int32()), count)
        elif name == "offset":
            array = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)])
        elif name == "timestamp":
            array = _timestamps(columns)
        elif name == "timestampType":
            array = pa.repeat(pa.scalar(int(timestamp_type), pa.int32()), count)
        else:
            array = _headers(columns)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _strings(
    kind: pa.DataType, count: int, validity: bytes | None, ends: bytes, data: bytes
) -> pa.Array:
    held = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, count, [held, pa.py_buffer(ends), pa.py_buffer(data)])


def _timestamps(columns: Columns) -> pa.Array:
    times_ms = numpy.frombuffer(columns.timestamps_ms, dtype=numpy.int64)
    # A producer may send any 64-bit number; Spark has no microseconds that far away.
    in_range = numpy.clip(times_ms, -_MILLISECONDS_MAX, _MILLISECONDS_MAX)
    times_us = in_range * 1000
    return pa.Array.from_buffers(TYPES["timestamp"], columns.count, [None, pa.py_buffer(times_us)])


def _headers(columns: Columns) -> pa.Array:
    """Lists of name and value; null, not empty, if a record has none, as in Spark's own source."""
    ends = numpy.frombuffer(columns.header_ends, dtype=numpy.int32)
    header_count = int(ends[-1])
    if header_count == 0:
        return pa.nulls(columns.count, TYPES[HEADERS_COLUMN])
    names = _strings(
        pa.string(), header_count, None, columns.header_name_ends, columns.header_name_data
    )
    values = _strings(
        pa.binary(),
        header_count,
        columns.header_value_validity,
        columns.header_value_ends,
        columns.header_value_data,
    )
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER_TYPE))
    validity = numpy.packbits(ends[1:] > ends[:-1], bitorder="little")
    return pa.ListArray.from_buffers(
        TYPES[HEADERS_COLUMN],
        columns.count,
        [pa.py_buffer(validity), pa.py_buffer(columns.header_ends)],
        children=[pairs],
    )
