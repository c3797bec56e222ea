"""Reading untrusted bytes: a position in a frame that never runs past the end.

Every count is checked against the remaining bytes before anything is allocated, and each
request has a budget of decoded elements, because one byte on the wire can become a hundred
bytes of Python objects. Anything wrong raises ProtocolError.
"""

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from millstream.errors import ProtocolError
from millstream.model import NO_TOPIC_ID

# Enough for a full-cluster request over 10,000 partitions; bounds what one frame can
# make us allocate to some tens of megabytes.
ELEMENTS_MAX: Final = 200_000
# As in Kafka, also where the size is a varint: names are hashed, compared and stored.
STRING_BYTES_MAX: Final = 0x7FFF
# Of one header or structure. Kafka defines a handful, and a header is read on the event loop.
TAGS_MAX: Final = 1_000
# Shorter ones are read and written without a pause.
LONG_ARRAY: Final = 100

EachOf = Callable[[Sequence[Any]], Iterable[Any]]

_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


@lru_cache(maxsize=10_000)
def _uuid(raw: bytes) -> uuid.UUID:
    """The same object each time: clients repeat the ids of their topics, and tables compare an
    object with itself much faster than with an equal one."""
    return uuid.UUID(bytes=raw) if any(raw) else NO_TOPIC_ID


class TooManyElements(ProtocolError):
    """Raised where a request has more elements than its budget."""


class Cursor:
    __slots__ = ("_each", "data", "elements_left", "end", "position")

    def __init__(
        self,
        data: memoryview,
        position: int = 0,
        elements_max: int = ELEMENTS_MAX,
        each: EachOf | None = None,
    ) -> None:
        """`each` goes through the elements of long arrays, and may pause between them."""
        self.data = data
        self.position = position
        self.end = len(data)
        self.elements_left = elements_max
        self._each = each

    def take(self, size: int) -> memoryview:
        start = self.position
        if size < 0 or size > self.end - start:
            raise ProtocolError(f"{size} bytes wanted, {self.end - start} left")
        self.position = start + size
        return self.data[start : start + size]

    def int8(self) -> int:
        value = self.take(1)[0]
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        return self.take(1)[0] != 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The values of a fixed layout; no slice is made, this runs for every request."""
        try:
            values = layout.unpack_from(self.data, self.position)
        except struct.error:
            left = self.end - self.position
            raise ProtocolError(f"{layout.size} bytes wanted, {left} left") from None
        self.position += layout.size
        return values

    def int16(self) -> int:
        try:
            value: int = _INT16.unpack_from(self.data, self.position)[0]
        except struct.error:
            raise ProtocolError(f"2 bytes wanted, {self.end - self.position} left") from None
        self.position += 2
        return value

    def uint16(self) -> int:
        return int(self.unpack(_UINT16)[0])

    def int32(self) -> int:
        try:
            value: int = _INT32.unpack_from(self.data, self.position)[0]
        except struct.error:
            raise ProtocolError(f"4 bytes wanted, {self.end - self.position} left") from None
        self.position += 4
        return value

    def int64(self) -> int:
        return int(self.unpack(_INT64)[0])

    def float64(self) -> float:
        return float(self.unpack(_FLOAT64)[0])

    def uuid(self) -> uuid.UUID:
        return _uuid(bytes(self.take(16)))

    def unsigned_varint(self) -> int:
        position = self.position
        # Nearly all are counts and lengths of one byte.
        if position < self.end:
            value = self.data[position]
            if value < 0x80:
                self.position = position + 1
                return value
        return self._long_varint()

    def _long_varint(self) -> int:
        data = self.data
        position = self.position
        value = 0
        for shift in (0, 7, 14, 21, 28):
            if position >= self.end:
                raise ProtocolError("frame ends inside a varint")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                if value > 0xFFFFFFFF:
                    break
                return value
        raise ProtocolError("varint is longer than 32 bits")

    def text(self, size: int) -> str:
        """A string of this many bytes."""
        start = self.position
        if not 0 <= size <= self.end - start:
            raise ProtocolError(f"{size} bytes wanted, {self.end - start} left")
        if size > STRING_BYTES_MAX:
            raise ProtocolError(f"a string of {size} bytes (allowed: {STRING_BYTES_MAX})")
        self.position = end = start + size
        try:
            return str(self.data[start:end], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("string is not UTF-8") from None

    def string(self) -> str:
        return self.text(self.int16())

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size == -1 else self.text(size)

    def compact_string(self) -> str:
        return self.text(self.unsigned_varint() - 1)

    def compact_nullable_string(self) -> str | None:
        size = self.unsigned_varint()
        return None if size == 0 else self.text(size - 1)

    def bytes_(self) -> memoryview:
        return self.take(self.int32())

    def nullable_bytes(self) -> memoryview | None:
        size = self.int32()
        return None if size == -1 else self.take(size)

    def compact_bytes(self) -> memoryview:
        return self.take(self.unsigned_varint() - 1)

    def compact_nullable_bytes(self) -> memoryview | None:
        size = self.unsigned_varint()
        return None if size == 0 else self.take(size - 1)

    def array_count(self) -> int:
        """Count of a classic array; -1 is null."""
        count = self.int32()
        if count == -1:
            return -1
        return self._checked_count(count)

    def compact_array_count(self) -> int:
        count = self.unsigned_varint() - 1
        # One element, with bytes left in the frame, needs no further check.
        if count == 1 and self.position < self.end and self.elements_left > 0:
            self.elements_left -= 1
            return 1
        if count == -1:
            return -1
        return self._checked_count(count)

    def _checked_count(self, count: int) -> int:
        # No element is smaller than a byte.
        if count < 0 or count > self.end - self.position:
            raise ProtocolError(f"array of {count} elements in {self.end - self.position} bytes")
        self.elements_left -= count
        if self.elements_left < 0:
            raise TooManyElements("a request with too many elements")
        return count

    def each_of(self, count: int) -> Iterable[object]:
        """So many things, for the elements of an array."""
        if self._each is None or count < LONG_ARRAY:
            return range(count)
        return self._each(range(count))

    def tags(self) -> Iterator[tuple[int, int]]:
        """(tag, size) of each tagged field; the caller consumes or skips `size` bytes."""
        count = self._checked_count(self.unsigned_varint())
        if count > TAGS_MAX:
            raise ProtocolError(f"{count} tagged fields (allowed: {TAGS_MAX})")
        previous = -1
        for _ in range(count):
            tag = self.unsigned_varint()
            if tag <= previous:
                raise ProtocolError(f"tag {tag} after tag {previous}")
            previous = tag
            yield tag, self.unsigned_varint()

    def skip_tags(self) -> None:
        position = self.position
        if position < self.end and self.data[position] == 0:
            self.position = position + 1
            return
        # Unknown tags are skipped, never kept: keeping them lets a client fill memory.
        for _, size in self.tags():
            self.take(size)
