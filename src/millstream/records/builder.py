"""Encodes record batches, byte for byte as Kafka's own producer does.

Used where the broker itself writes records: recompression, coordinators, transaction
markers, tests. Batches from clients are stored as they came.
"""

import struct
from collections.abc import Sequence
from typing import Final

from millstream.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, Codec, TimestampType
from millstream.records.batch import (
    CONTROL_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_FIELD_END,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchView,
)
from millstream.records.checksum import crc32c
from millstream.records.compression import compress
from millstream.records.records import Record
from millstream.records.unpacking import unpacked

# Python 3.11 looks a member up in Python code, which a small batch would feel.
_UNCOMPRESSED: Final = Codec.NONE
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME

_CRC_POSITION: Final = 17
# The header's two halves; the checksum between them is of the second one.
_UNTIL_CRC: Final = struct.Struct(">qiibI")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_KEEP_ON_REWRITE_MASK: Final = 0xFFF8


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch of `records`, whose offsets count from `base_offset` and may have gaps."""
    if not records:
        raise ValueError("a batch needs at least one record")
    attributes = int(codec)
    if timestamp_type is _LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_MASK
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    if is_control:
        attributes |= CONTROL_MASK
    base_timestamp_ms = records[0].timestamp_ms
    payload: bytes | bytearray = _encode_records(records, base_offset, base_timestamp_ms)
    if codec is not _UNCOMPRESSED:
        payload = compress(codec, payload)
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES + len(payload) - LENGTH_FIELD_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        records[-1].offset - base_offset,
        base_timestamp_ms,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += payload
    _seal(batch)
    return batch


def build_key_values(
    pairs: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamp_ms: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """What `build_batch` makes of records without headers that are all of one time.

    For the coordinators, which write thousands of small batches a second.
    """
    parts: list[bytes] = [b""]
    for offset_delta, (key, value) in enumerate(pairs):
        body = b"".join(
            (
                b"\0\0",
                _varint(offset_delta),
                _varint(len(key)),
                key,
                _NULL_LENGTH if value is None else _varint(len(value)),
                value or b"",
                b"\0",
            )
        )
        parts.append(_varint(len(body)))
        parts.append(body)
    count = len(pairs)
    parts[0] = _AFTER_CRC.pack(
        TRANSACTIONAL_MASK if is_transactional else 0,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        -1,
        count,
    )
    checked = b"".join(parts)
    length = CRC_START - LENGTH_FIELD_END + len(checked)
    batch = bytearray(_UNTIL_CRC.pack(0, length, NO_LEADER_EPOCH, MAGIC, crc32c(checked)))
    batch += checked
    return batch


def recompress(batch: BatchView, codec: Codec, *, limit_bytes: int) -> bytearray:
    """The same records under another codec. Raises ValueError when they cannot be unpacked.

    The records themselves are not looked at: their bytes are the same under every codec.
    """
    with unpacked(batch.codec, batch.records, limit_bytes=limit_bytes) as records:
        payload = compress(codec, records)
    rewritten = bytearray(batch.buffer[:HEADER_BYTES])
    HEADER.pack_into(
        rewritten,
        0,
        batch.base_offset,
        HEADER_BYTES + len(payload) - LENGTH_FIELD_END,
        batch.partition_leader_epoch,
        MAGIC,
        0,
        (batch.attributes & _KEEP_ON_REWRITE_MASK) | codec.value,
        batch.last_offset_delta,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    rewritten += payload
    _seal(rewritten)
    return rewritten


def _seal(batch: bytearray) -> None:
    crc = crc32c(memoryview(batch)[CRC_START:])
    batch[_CRC_POSITION:CRC_START] = crc.to_bytes(4, "big")


def _encode_records(
    records: Sequence[Record], base_offset: int, base_timestamp_ms: int
) -> bytearray:
    encoded = bytearray()
    for record in records:
        key, value, headers = record.key, record.value, record.headers
        body = b"".join(
            (
                b"\0",
                _varint(record.timestamp_ms - base_timestamp_ms),
                _varint(record.offset - base_offset),
                _NULL_LENGTH if key is None else _varint(len(key)),
                key or b"",
                _NULL_LENGTH if value is None else _varint(len(value)),
                value or b"",
                _encode_headers(headers) if headers else b"\0",
            )
        )
        encoded += _varint(len(body))
        encoded += body
    return encoded


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    encoded = bytearray(_varint(len(headers)))
    for name, value in headers:
        raw = name.encode()
        encoded += _varint(len(raw))
        encoded += raw
        encoded += _NULL_LENGTH if value is None else _varint(len(value))
        encoded += value or b""
    return bytes(encoded)


def _varint(number: int) -> bytes:
    return _SHORT_VARINTS[number] if 0 <= number < _SHORT_MAX else _long_varint(number)


def _long_varint(number: int) -> bytes:
    encoded = bytearray()
    write_varint(encoded, number)
    return bytes(encoded)


def write_varint(target: bytearray, number: int) -> None:
    """Zigzag, so that small negative numbers stay small."""
    value = (number << 1) ^ (number >> 63)
    while value >= 0x80:
        target.append((value & 0x7F) | 0x80)
        value >>= 7
    target.append(value)


# Lengths and deltas are nearly always short, and a loop over seven bits costs more than all
# else in a batch of one record.
_SHORT_MAX: Final = 1024
_SHORT_VARINTS: Final = tuple(_long_varint(number) for number in range(_SHORT_MAX))
_NULL_LENGTH: Final = _long_varint(-1)
