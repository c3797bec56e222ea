"""Writing protocol values into a growing bytearray."""

import struct
import uuid
from collections.abc import Iterable
from typing import Any

from millstream.wire.cursor import LONG_ARRAY, EachOf

_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


class PausingOutput(bytearray):
    """For a writer that may pause between the elements of long arrays."""

    def __init__(self, start: bytes | bytearray, each: EachOf) -> None:
        super().__init__(start)
        self.each = each


def each_of(out: bytearray, items: list[Any]) -> Iterable[Any]:
    """The elements of an array that is written."""
    if len(items) < LONG_ARRAY or not isinstance(out, PausingOutput):
        return items
    return out.each(items)


def int8(out: bytearray, value: int) -> None:
    out.append(value & 0xFF)


def boolean(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def int16(out: bytearray, value: int) -> None:
    out += _INT16.pack(value)


def uint16(out: bytearray, value: int) -> None:
    out += _UINT16.pack(value)


def int32(out: bytearray, value: int) -> None:
    out += _INT32.pack(value)


def int64(out: bytearray, value: int) -> None:
    out += _INT64.pack(value)


def float64(out: bytearray, value: float) -> None:
    out += _FLOAT64.pack(value)


def uuid_(out: bytearray, value: uuid.UUID) -> None:
    out += value.bytes


def unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def string(out: bytearray, value: str) -> None:
    raw = value.encode()
    out += _INT16.pack(len(raw))
    out += raw


def nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        string(out, value)


def compact_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    unsigned_varint(out, len(raw) + 1)
    out += raw


def compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        compact_string(out, value)


def bytes_(out: bytearray, value: bytes | memoryview) -> None:
    out += _INT32.pack(len(value))
    out += value


def nullable_bytes(out: bytearray, value: bytes | memoryview | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        bytes_(out, value)


def compact_bytes(out: bytearray, value: bytes | memoryview) -> None:
    unsigned_varint(out, len(value) + 1)
    out += value


def compact_nullable_bytes(out: bytearray, value: bytes | memoryview | None) -> None:
    if value is None:
        out.append(0)
    else:
        compact_bytes(out, value)


def array_count(out: bytearray, count: int) -> None:
    out += _INT32.pack(count)


def compact_array_count(out: bytearray, count: int) -> None:
    if count < 0x7F:
        out.append(count + 1)
    else:
        unsigned_varint(out, count + 1)
