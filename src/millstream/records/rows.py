"""Rows that lie in columns, as Arrow lays them out, into record batches.

The way back of `columns`: callers with rows in buffers make batches of them without an
object per row. The loops exist twice, compiled and in Python, with the same output.
Nothing here knows Arrow; `ends` are its 32-bit offsets, and `first` is where an array
that is a slice of a larger one begins.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, Codec
from millstream.records import _rows_pure
from millstream.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_FIELD_END,
    MAGIC,
    TRANSACTIONAL_MASK,
)
from millstream.records.checksum import crc32c
from millstream.records.compression import compress
from millstream.records.row_columns import HeadersColumn, Numbers, StringColumn

_CRC_POSITION: Final = 17


class RowEncoder(Protocol):
    """The columns of one run of rows; they are not copied."""

    def partitions(self, count: int, partition_count: int) -> bytes:
        """Where Kafka's own partitioner sends the first `count` rows, by key: a native
        32-bit integer each, -1 where there is no key."""
        ...

    def encode(self, rows: Numbers, start: int, bytes_max: int) -> tuple[bytes, int]:
        """The records of `rows[start:]`, and behind which row they end.

        `rows` are 64-bit row numbers. At least one is taken, and then as many as fit
        `bytes_max`.
        """
        ...


class Implementation(Protocol):
    NAME: str

    def RowEncoder(
        self, keys: StringColumn | None, values: StringColumn, headers: HeadersColumn | None
    ) -> RowEncoder: ...

    def grouped(
        self, rows: Numbers, numbers: Numbers, group_count: int
    ) -> tuple[bytes, list[tuple[int, int]]]:
        """64-bit `rows` ordered by their 32-bit `numbers` below `group_count`, else in the
        order they had; and which number has how many, without those that have none."""
        ...


PURE: Final = cast(Implementation, _rows_pure)


def _compiled() -> Implementation | None:
    if not TYPE_CHECKING:
        try:
            from millstream.records import _rows
        except ImportError:
            return None
    else:
        from millstream.records import _rows
    return cast(Implementation, _rows)


COMPILED: Final = _compiled()
IMPLEMENTATION: Final = COMPILED or PURE


@dataclass(frozen=True, slots=True)
class Producer:
    """Who writes; the default writes without sequence numbers."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    is_transactional: bool = False


def build_batch_of_rows(
    records: bytes,
    count: int,
    *,
    timestamp_ms: int,
    codec: Codec,
    producer: Producer,
    base_sequence: int,
) -> tuple[bytes, bytes]:
    """Header and records of one batch of `count` encoded records with the same time.

    Apart, so that a sender need not copy a megabyte to put 61 bytes before it.
    """
    payload = compress(codec, records)
    header = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        header,
        0,
        0,
        HEADER_BYTES + len(payload) - LENGTH_FIELD_END,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        codec.value | (TRANSACTIONAL_MASK if producer.is_transactional else 0),
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer.producer_id,
        producer.epoch,
        base_sequence,
        count,
    )
    crc = crc32c(payload, crc32c(header[CRC_START:]))
    header[_CRC_POSITION:CRC_START] = crc.to_bytes(4, "big")
    return bytes(header), payload
