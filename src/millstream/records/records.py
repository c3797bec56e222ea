"""The records inside a batch, decoded strictly.

Only the paths that need a record use this: compacted topics, recompression, lookups by
timestamp, tools. Whatever disagrees with the batch header is a ValueError, never a guess:
these bytes come from strangers and later readers trust them.

    length          varint   bytes after this field
    attributes      int8     unused
    timestamp_delta varlong
    offset_delta    varint
    key             varint length (-1 = null) and bytes
    value           varint length (-1 = null) and bytes
    headers         varint count, each: key (never null), value (may be null)
"""

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.model import Codec
from millstream.records.batch import TIMESTAMP_TYPE_MASK, BatchView
from millstream.records.compression import decompress

# Seven one-byte fields: the smallest record there can be, so that a count in a header
# can be held against the bytes that are there before anything is allocated.
RECORD_BYTES_MIN: Final = 7


@dataclass(slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def read_records(batch: BatchView, *, limit_bytes: int) -> list[Record]:
    return list(iterate_records(batch, limit_bytes=limit_bytes))


def iterate_records(batch: BatchView, *, limit_bytes: int) -> Iterator[Record]:
    """The records in order. Raises ValueError where the bytes do not add up."""
    codec = batch.codec
    data: bytes | memoryview = batch.records
    if codec is not Codec.NONE:
        data = decompress(codec, data, limit_bytes=limit_bytes)
    elif len(data) > limit_bytes:
        raise ValueError(f"records are more than {limit_bytes} bytes")
    count = batch.record_count
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise ValueError(f"batch says {count} records, {len(data)} bytes are there")
    position = 0
    last_delta = -1
    append_time_ms = batch.max_timestamp_ms if batch.attributes & TIMESTAMP_TYPE_MASK else None
    for _ in range(count):
        length, position = read_varint(data, position)
        end = position + length
        if length < RECORD_BYTES_MIN - 1 or end > len(data):
            raise ValueError(f"record of {length} bytes does not fit its batch")
        record, delta = _read_record(data, position, end, batch)
        if delta <= last_delta or delta > batch.last_offset_delta:
            raise ValueError(f"record offset delta {delta} is out of order")
        if append_time_ms is not None:
            record.timestamp_ms = append_time_ms
        last_delta = delta
        position = end
        yield record
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes after the last record")


def _read_record(
    data: bytes | memoryview, position: int, end: int, batch: BatchView
) -> tuple[Record, int]:
    timestamp_delta, position = read_varint(data, position + 1, bytes_max=10)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    header_count, position = read_varint(data, position)
    if header_count < 0 or header_count * 2 > end - position:
        raise ValueError(f"record says {header_count} headers, {end - position} bytes are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise ValueError("record header without a name")
        header_value, position = _read_bytes(data, position, end)
        # As Java's consumer shows a name that is not UTF-8.
        headers.append((name.decode(errors="replace"), header_value))
    if position != end:
        raise ValueError(f"record length is off by {end - position} bytes")
    record = Record(
        batch.base_offset + offset_delta,
        batch.base_timestamp_ms + timestamp_delta,
        key,
        value,
        headers,
    )
    return record, offset_delta


def _read_bytes(data: bytes | memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise ValueError(f"field of {length} bytes does not fit its record")
    return bytes(data[position : position + length]), position + length


def read_varint(
    data: bytes | bytearray | memoryview, position: int, *, bytes_max: int = 5
) -> tuple[int, int]:
    """A zigzag varint at `position`, and the position after it."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        value = byte & 0x7F
        for index in range(1, bytes_max):
            byte = data[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position + index + 1
    except IndexError:
        raise ValueError("data ends inside a number") from None
    raise ValueError(f"number is longer than {bytes_max} bytes")
