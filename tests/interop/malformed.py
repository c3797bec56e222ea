"""Batches that no producer should send, each with a name: what is wrong, and under which codec."""

import struct
import time
from collections.abc import Callable, Iterator

from crc32c import crc32c

from millstream.model import Codec
from millstream.records.compression import compress

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_START = 21
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
# Fields of the header, in order.
FIELDS = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes"),
    *("last_offset_delta", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch"),
    *("base_sequence", "count"),
)
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int = 0,
    *,
    key: bytes = sized(b"k"),
    value: bytes = sized(b"v"),
    headers: bytes = b"\0",
    attributes: bytes = b"\0",
    timestamp: bytes = b"\0",
    offset: bytes | None = None,
    size_change: int = 0,
) -> bytes:
    body = attributes + timestamp + (varint(delta) if offset is None else offset)
    body += key + value + headers
    return varint(len(body) + size_change) + body


def batch(records: bytes, *, count: int = 2, codec: Codec = Codec.NONE, **changes: int) -> bytes:
    """A batch of encoded records; `changes` are fields of the header that are set last."""
    payload = compress(codec, records) if codec is not Codec.NONE else records
    return raw_batch(payload, **{"count": count, "attributes": int(codec), **changes})


def raw_batch(payload: bytes, **changes: int) -> bytes:
    now_ms = int(time.time() * 1000)
    values = {
        "base_offset": 0,
        "length": HEADER.size - 12 + len(payload),
        "leader_epoch": -1,
        "magic": 2,
        "crc": -1,
        "attributes": 0,
        "last_offset_delta": changes.get("count", 2) - 1,
        "base_timestamp": now_ms,
        "max_timestamp": now_ms,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": 2,
        **changes,
    }
    wanted_crc = values.pop("crc")
    ordered = [values[name] for name in FIELDS if name != "crc"]
    data = bytearray(HEADER.pack(*ordered[:4], 0, *ordered[4:]) + payload)
    crc = crc32c(bytes(data[CRC_START:])) if wanted_crc < 0 else wanted_crc
    data[17:21] = crc.to_bytes(4, "big")
    return bytes(data)


TWO = record(0) + record(1)

_HEADERS: dict[str, dict[str, int]] = {
    "as it should be": {},
    "base offset 7": {"base_offset": 7},
    "base offset below zero": {"base_offset": -1},
    "leader epoch 9": {"leader_epoch": 9},
    "magic 0": {"magic": 0},
    "magic 1": {"magic": 1},
    "magic 3": {"magic": 3},
    "magic -1": {"magic": -1},
    "wrong checksum": {"crc": 1},
    "codec 5": {"attributes": 5},
    "codec 7": {"attributes": 7},
    "append time": {"attributes": 8},
    "transactional": {"attributes": 16},
    "transactional with a producer": {
        "attributes": 16,
        "producer_id": 9,
        "producer_epoch": 0,
        "base_sequence": 0,
    },
    "control": {"attributes": 32},
    "delete horizon": {"attributes": 64},
    "an unknown attribute": {"attributes": 128},
    "another unknown attribute": {"attributes": 1 << 14},
    "last offset delta 0": {"last_offset_delta": 0},
    "last offset delta 2": {"last_offset_delta": 2},
    "last offset delta -1": {"last_offset_delta": -1},
    "largest last offset delta": {"last_offset_delta": INT32_MAX},
    "no records": {"count": 0, "last_offset_delta": 0},
    "no records and no offsets": {"count": 0, "last_offset_delta": -1},
    "one record less than there is": {"count": 1},
    "one record more than there is": {"count": 3},
    "count below zero": {"count": -1, "last_offset_delta": 1},
    "the largest count": {"count": INT32_MAX},
    "base timestamp -1": {"base_timestamp": -1, "max_timestamp": -1},
    "smallest base timestamp": {"base_timestamp": -INT64_MAX - 1},
    "largest base timestamp": {"base_timestamp": INT64_MAX, "max_timestamp": INT64_MAX},
    "a base timestamp of the year 2100": {"base_timestamp": 4_102_444_800_000},
    "a base timestamp of 1970": {"base_timestamp": 1, "max_timestamp": 1},
    "largest timestamp of the year 2100": {"max_timestamp": 4_102_444_800_000},
    "largest timestamp 0": {"max_timestamp": 0},
    "producer without epoch": {"producer_id": 9},
    "producer without sequence": {"producer_id": 9, "producer_epoch": 0},
    "producer -2": {"producer_id": -2},
    "sequence without producer": {"base_sequence": 5},
    "epoch without producer": {"producer_epoch": 5},
    "sequence 5 first": {"producer_id": 77, "producer_epoch": 0, "base_sequence": 5},
    "an invented producer": {"producer_id": 123456, "producer_epoch": 0, "base_sequence": 0},
}

_RECORDS: dict[str, bytes] = {
    "as they should be": TWO,
    "garbage": b"\xff" * len(TWO),
    "zeroes": bytes(len(TWO)),
    "nothing": b"",
    "the first alone": record(0),
    "three of them": TWO + record(2),
    "cut in the last": TWO[:-1],
    "a byte more": TWO + b"\0",
    "offsets 0 and 0": record(0) + record(0),
    "offsets 1 and 2": record(1) + record(2),
    "offsets 1 and 0": record(1) + record(0),
    "offsets 0 and 5": record(0) + record(5),
    "an offset below zero": record(-1) + record(1),
    "size one too large": record(0) + record(1, size_change=1),
    "size one too small": record(0) + record(1, size_change=-1),
    "first size one too large": record(0, size_change=1) + record(1),
    "first size one too small": record(0, size_change=-1) + record(1),
    "size below zero": varint(-5) + record(1),
    "size 0": b"\0" + record(1),
    "a size that never ends": b"\xff" * 6 + record(1),
    "attributes of the record": record(0, attributes=b"\xff") + record(1),
    "a time that never ends": record(0, timestamp=b"\xff" * 11) + record(1),
    "a time far ahead": record(0, timestamp=varint(10**13)) + record(1),
    "a time before 1970": record(0, timestamp=varint(-(10**13))) + record(1),
    "an offset that never ends": record(0, offset=b"\xff" * 6) + record(1),
    "a null key": record(0, key=varint(-1)) + record(1),
    "key length -2": record(0, key=varint(-2)) + record(1),
    "a key that is too long": record(0, key=varint(100) + b"k") + record(1),
    "the longest key": record(0, key=varint(INT32_MAX) + b"k") + record(1),
    "a null value": record(0, value=varint(-1)) + record(1),
    "value length -2": record(0, value=varint(-2)) + record(1),
    "a value that is too long": record(0, value=varint(100) + b"v") + record(1),
    "headers below zero": record(0, headers=varint(-1)) + record(1),
    "more headers than bytes": record(0, headers=varint(60_000_000)) + record(1),
    "one header, none there": record(0, headers=varint(1)) + record(1),
    "a header": record(0, headers=varint(1) + sized(b"h") + sized(b"x")) + record(1),
    "a header without value": record(0, headers=varint(1) + sized(b"h") + varint(-1)) + record(1),
    "a header without key": record(0, headers=varint(1) + varint(-1) + varint(-1)) + record(1),
    "a header key that is too long": record(0, headers=varint(1) + varint(50) + b"h") + record(1),
    "a header key of no UTF-8": record(0, headers=varint(1) + sized(b"\xff") + b"\0") + record(1),
}

_PAYLOADS: dict[str, Callable[[Codec], bytes]] = {
    "is garbage": lambda codec: b"\x7f" * 40,
    "is empty": lambda codec: b"",
    "is not compressed": lambda codec: TWO,
    "is cut": lambda codec: compress(codec, TWO)[:-3],
    "has bytes behind it": lambda codec: compress(codec, TWO) + b"behind",
    "comes twice": lambda codec: compress(codec, record(0)) + compress(codec, record(1)),
    "is damaged": lambda codec: _damaged(compress(codec, TWO)),
}


def _damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]


def cases() -> Iterator[tuple[str, bytes]]:
    for name, changes in _HEADERS.items():
        yield f"header: {name}", batch(TWO, **changes)
    for codec in CODECS:
        for name, records in _RECORDS.items():
            yield f"{codec.name.lower()} records: {name}", batch(records, codec=codec)
    for codec in CODECS[1:]:
        for name, payload in _PAYLOADS.items():
            data = raw_batch(payload(codec), attributes=int(codec))
            yield f"{codec.name.lower()} data {name}", data
    whole = batch(TWO)
    yield "two batches", whole + whole
    yield "a byte behind the batch", whole + b"\0"
    for size in (0, 1, 11, 12, 16, 17, 60, 61, len(whole) - 1):
        yield f"the first {size} bytes", whole[:size]
    for length in (-1, 0, 48, 49, 10**6, INT32_MAX):
        yield f"length {length}", batch(TWO, length=length)
