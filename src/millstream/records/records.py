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
from itertools import islice
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.model import Codec
from millstream.records.batch import TIMESTAMP_TYPE_MASK, BatchView
from millstream.records.compression import decompress

# Seven one-byte fields: the smallest record there can be, so that a count in a header
# can be held against the bytes that are there before anything is allocated.
RECORD_BYTES_MIN: Final = 7
# Headers without content take two bytes each, and compress to nothing: two kilobytes may be objects
# for gigabytes. Far more than anybody puts into a record.
HEADERS_MAX: Final = 10_000
# In all records of a batch that are read.
BATCH_HEADERS_MAX: Final = 2_000_000
# In a list.
RECORDS_MAX: Final = 2_000_000


@dataclass(slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def read_records(batch: BatchView, *, limit_bytes: int) -> list[Record]:
    """As `iterate_records`. Raises ValueError also where there are too many for a list."""
    records = iterate_records(batch, limit_bytes=limit_bytes)
    found = list(islice(records, RECORDS_MAX))
    if next(records, None) is not None:
        raise ValueError(f"batch has {batch.record_count} records, up to {RECORDS_MAX} are read")
    return found


def iterate_records(
    batch: BatchView, *, limit_bytes: int, from_offset: int = 0
) -> Iterator[Record]:
    """The records in order. Those before `from_offset` are passed over, whatever is in them. Raises
    ValueError where the bytes do not add up, or are more headers than honest records have."""
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
    headers_left = BATCH_HEADERS_MAX
    append_time_ms = batch.max_timestamp_ms if batch.attributes & TIMESTAMP_TYPE_MASK else None
    for _ in range(count):
        length, position = read_varint(data, position)
        end = position + length
        if length < RECORD_BYTES_MIN - 1 or end > len(data):
            raise ValueError(f"record of {length} bytes does not fit its batch")
        timestamp_delta, position = read_varint(data, position + 1, bytes_max=10)
        delta, position = read_varint(data, position)
        if delta <= last_delta or delta > batch.last_offset_delta:
            raise ValueError(f"record offset delta {delta} is out of order")
        offset = batch.base_offset + delta
        if offset >= from_offset:
            timestamp_ms = batch.base_timestamp_ms + timestamp_delta
            if append_time_ms is not None:
                timestamp_ms = append_time_ms
            record = _read_record(data, position, end, offset, timestamp_ms)
            headers_left -= len(record.headers)
            if headers_left < 0:
                raise ValueError(
                    f"batch has more than {BATCH_HEADERS_MAX} headers up to offset {offset}"
                )
            yield record
        last_delta = delta
        position = end
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes after the last record")


def _read_record(
    data: bytes | memoryview, position: int, end: int, offset: int, timestamp_ms: int
) -> Record:
    """From its key on."""
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    header_count, position = read_varint(data, position)
    if header_count < 0 or header_count * 2 > end - position:
        raise ValueError(f"record says {header_count} headers, {end - position} bytes are left")
    if header_count > HEADERS_MAX:
        raise ValueError(
            f"record at offset {offset} has {header_count} headers, up to {HEADERS_MAX} are read"
        )
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
    return Record(offset, timestamp_ms, key, value, headers)


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
