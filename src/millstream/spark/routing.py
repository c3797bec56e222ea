"""Chooses the topic and partition of each Arrow row to write.

As Kafka's own producer: by the column `partition` if it is set, else by the key, else to a
partition that changes from one Arrow batch to the next.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from millstream.model import TopicPartition
from millstream.records.row_columns import HeadersColumn, StringColumn
from millstream.records.rows import IMPLEMENTATION, RowEncoder
from millstream.spark.failure import SourceError

Rows = NDArray[numpy.int64]
Partitions = NDArray[numpy.int32]

_PLAIN_STRINGS = (pa.binary(), pa.string())


@dataclass(frozen=True, slots=True)
class Routed:
    """Rows of one Arrow batch that go to one partition, in their order."""

    partition: TopicPartition
    encoder: RowEncoder
    # 64-bit row numbers.
    rows: memoryview
    size_bytes: int


class Router:
    def __init__(
        self,
        count_partitions: Callable[[str], int],
        *,
        topic: str | None,
        has_headers: bool,
        first_partition: int,
    ) -> None:
        """`first_partition` spreads the tasks of a write over the partitions."""
        self._count_partitions = count_partitions
        self._topic = topic
        self._has_headers = has_headers
        self._next_keyless = first_partition

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        key = columns.get("key")
        headers = columns.get("headers") if self._has_headers else None
        encoder = IMPLEMENTATION.RowEncoder(
            None if key is None or key.type == pa.null() else string_column(key),
            string_column(columns["value"]),
            None if headers is None or headers.type == pa.null() else headers_column(headers),
        )
        chosen = columns.get("partition")
        self._next_keyless += 1
        for topic, rows in self._by_topic(batch, columns.get("topic")):
            numbers = self._partitions_of(topic, encoder, batch.num_rows, chosen)
            group_count = self._count_partitions(topic)
            ordered, counts = IMPLEMENTATION.grouped(rows.data, numbers[rows].data, group_count)
            rest = memoryview(ordered).cast("q")
            for partition, count in counts:
                size_bytes = batch.nbytes * count // batch.num_rows
                where = TopicPartition(topic, partition)
                yield Routed(where, encoder, rest[:count], size_bytes)
                rest = rest[count:]

    def _by_topic(
        self, batch: pa.RecordBatch, topics: pa.Array | None
    ) -> Iterator[tuple[str, Rows]]:
        every = numpy.arange(batch.num_rows, dtype=numpy.int64)
        if self._topic is not None:
            yield self._topic, every
            return
        assert topics is not None
        if topics.null_count:
            raise SourceError(
                "NULL_TOPIC",
                "The column 'topic' is null in some rows. Fill it, or set the option 'topic'",
            )
        coded = topics.dictionary_encode()
        codes = coded.indices.to_numpy()
        for code, name in enumerate(coded.dictionary.to_pylist()):
            yield name, every[codes == code]

    def _partitions_of(
        self, topic: str, encoder: RowEncoder, row_count: int, chosen: pa.Array | None
    ) -> Partitions:
        count = self._count_partitions(topic)
        hashed = numpy.frombuffer(encoder.partitions(row_count, count), dtype=numpy.int32)
        numbers = numpy.where(hashed < 0, self._next_keyless % count, hashed)
        if chosen is not None and chosen.null_count < row_count:
            wanted = chosen.fill_null(-1).to_numpy(zero_copy_only=False)
            is_null = chosen.is_null().to_numpy(zero_copy_only=False)
            if ((wanted < 0) & ~is_null).any() or (wanted >= count).any():
                raise SourceError(
                    "UNKNOWN_PARTITION",
                    f"The column 'partition' holds a number that topic {topic} with its {count} "
                    "partitions does not have. If it is null or missing, the key decides",
                )
            numbers = numpy.where(is_null, numbers, wanted)
        return numbers.astype(numpy.int32)


def string_column(array: pa.Array) -> StringColumn:
    """The buffers of an array of text or bytes; only unusual layouts are copied."""
    if array.type not in _PLAIN_STRINGS:
        array = array.cast(pa.binary())
    validity, ends, data = array.buffers()
    return StringColumn(
        None if validity is None or not array.null_count else _bytes(validity),
        _numbers(ends),
        b"" if data is None else _bytes(data),
        array.offset,
    )


def headers_column(array: pa.Array) -> HeadersColumn:
    validity, ends = array.buffers()[:2]
    pairs = array.values
    return HeadersColumn(
        None if validity is None or not array.null_count else _bytes(validity),
        _numbers(ends),
        array.offset,
        string_column(pairs.field(0)),
        string_column(pairs.field(1)),
    )


def _bytes(buffer: pa.Buffer) -> memoryview:
    return memoryview(buffer).cast("B")


def _numbers(buffer: pa.Buffer | None) -> memoryview:
    # An array without entries may have no buffer at all.
    if buffer is None or buffer.size < 4:
        return memoryview(b"\0\0\0\0").cast("i")
    view = memoryview(buffer).cast("B")
    return view[: len(view) // 4 * 4].cast("i")
