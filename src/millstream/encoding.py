"""Kafka's primitive encodings over bytes: what records of internal topics are made of.

A `Reader` never reads past its end and a `Writer` never writes what a `Reader` would
refuse; both raise ValueError. Messages between clients and nodes are not encoded here.
"""

import struct
import uuid
from typing import Final

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT16: Final = struct.Struct(">H")
_UINT32: Final = struct.Struct(">I")
_FLOAT64: Final = struct.Struct(">d")
# Named here because both classes below have a method `bytes`.
_Data = bytes | bytearray | memoryview
_TaggedFields = dict[int, bytes]

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64


class Reader:
    """Reads values one after the other from `data`."""

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: _Data) -> None:
        self._data = memoryview(data)
        self._end = len(self._data)
        self.position = 0

    @property
    def remaining_bytes(self) -> int:
        return self._end - self.position

    def raw(self, size_bytes: int) -> memoryview:
        """The next bytes, not copied."""
        if size_bytes < 0 or size_bytes > self._end - self.position:
            raise ValueError(f"{size_bytes} bytes wanted, {self.remaining_bytes} are left")
        start = self.position
        self.position = start + size_bytes
        return self._data[start : self.position]

    def boolean(self) -> bool:
        return self.int8() != 0

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uint16(self) -> int:
        return self._number(_UINT16)

    def uint32(self) -> int:
        return self._number(_UINT32)

    def float64(self) -> float:
        (value,) = _FLOAT64.unpack(self.raw(8))
        assert isinstance(value, float)
        return value

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=bytes(self.raw(16)))

    def unsigned_varint(self) -> int:
        return self._variable(_VARINT_BITS)

    def varint(self) -> int:
        """Zigzag: small negative numbers are short too."""
        value = self._variable(_VARINT_BITS)
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        value = self._variable(_VARLONG_BITS)
        return (value >> 1) ^ -(value & 1)

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ValueError("a text is null where it must not be")
        return value

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else str(self.raw(length), "utf-8")

    def bytes(self) -> memoryview:
        return self.raw(self.int32())

    def compact_string(self) -> str:
        value = self.compact_nullable_string()
        if value is None:
            raise ValueError("a text is null where it must not be")
        return value

    def compact_nullable_string(self) -> str | None:
        length = self.unsigned_varint() - 1
        return None if length == -1 else str(self.raw(length), "utf-8")

    def compact_bytes(self) -> memoryview:
        return self.raw(self.unsigned_varint() - 1)

    def array_length(self) -> int | None:
        """Elements to read, None for a null array. Each takes a byte at least."""
        return self._checked_length(self.int32())

    def compact_array_length(self) -> int | None:
        return self._checked_length(self.unsigned_varint() - 1)

    def tagged_fields(self) -> dict[int, memoryview]:
        """Optional fields at the end of a structure, by their tags."""
        fields: dict[int, memoryview] = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = self.raw(self.unsigned_varint())
        return fields

    def _number(self, form: struct.Struct) -> int:
        (value,) = form.unpack(self.raw(form.size))
        assert isinstance(value, int)
        return value

    def _variable(self, bits: int) -> int:
        value = 0
        for shift in range(0, bits, 7):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    break
                return value
        raise ValueError(f"a number has more than {bits} bits")

    def _checked_length(self, length: int) -> int | None:
        if length == -1:
            return None
        # A huge count in a short message would otherwise cost memory before it fails.
        if length < 0 or length > self.remaining_bytes:
            raise ValueError(f"{length} elements cannot be in {self.remaining_bytes} bytes")
        return length


class Writer:
    """Gathers values; `getvalue` gives the bytes."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = bytearray()

    def getvalue(self) -> bytes:
        return bytes(self._parts)

    def raw(self, data: _Data) -> None:
        self._parts += data

    def boolean(self, value: bool) -> None:
        self._parts.append(1 if value else 0)

    def int8(self, value: int) -> None:
        self._number(_INT8, value)

    def int16(self, value: int) -> None:
        self._number(_INT16, value)

    def int32(self, value: int) -> None:
        self._number(_INT32, value)

    def int64(self, value: int) -> None:
        self._number(_INT64, value)

    def uint16(self, value: int) -> None:
        self._number(_UINT16, value)

    def uint32(self, value: int) -> None:
        self._number(_UINT32, value)

    def float64(self, value: float) -> None:
        self._parts += _FLOAT64.pack(value)

    def uuid(self, value: uuid.UUID) -> None:
        self._parts += value.bytes

    def unsigned_varint(self, value: int) -> None:
        if not 0 <= value < 1 << _VARINT_BITS:
            raise ValueError(f"{value} is no unsigned 32-bit number")
        self._variable(value)

    def varint(self, value: int) -> None:
        self._zigzag(value, _VARINT_BITS)

    def varlong(self, value: int) -> None:
        self._zigzag(value, _VARLONG_BITS)

    def string(self, value: str) -> None:
        data = value.encode()
        self.int16(len(data))
        self._parts += data

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
        else:
            self.string(value)

    def bytes(self, value: _Data) -> None:
        self.int32(len(value))
        self._parts += value

    def compact_string(self, value: str) -> None:
        data = value.encode()
        self.unsigned_varint(len(data) + 1)
        self._parts += data

    def compact_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.unsigned_varint(0)
        else:
            self.compact_string(value)

    def compact_bytes(self, value: _Data) -> None:
        self.unsigned_varint(len(value) + 1)
        self._parts += value

    def array_length(self, length: int | None) -> None:
        self.int32(-1 if length is None else length)

    def compact_array_length(self, length: int | None) -> None:
        self.unsigned_varint(0 if length is None else length + 1)

    def tagged_fields(self, fields: _TaggedFields | None = None) -> None:
        """Tags are written in order, as every reader of Kafka's expects."""
        wanted = fields or {}
        self.unsigned_varint(len(wanted))
        for tag in sorted(wanted):
            self.unsigned_varint(tag)
            self.unsigned_varint(len(wanted[tag]))
            self._parts += wanted[tag]

    def _number(self, form: struct.Struct, value: int) -> None:
        try:
            self._parts += form.pack(value)
        except struct.error as problem:
            raise ValueError(f"{value}: {problem}") from None

    def _zigzag(self, value: int, bits: int) -> None:
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise ValueError(f"{value} is no {bits}-bit number")
        self._variable((value << 1) ^ (value >> (bits - 1)))

    def _variable(self, value: int) -> None:
        while value >= 0x80:
            self._parts.append((value & 0x7F) | 0x80)
            value >>= 7
        self._parts.append(value)
