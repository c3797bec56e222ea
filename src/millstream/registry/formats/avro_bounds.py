"""Refuses Avro data that would take far more memory than it has bytes, or nest without end.

A null takes no byte, so a few bytes can hold an array of a billion of them; a record that contains
itself can be nested as deep as the data is long, which ends the process inside of fastavro. Most
schemas allow neither, and their data is not looked at here. Data of the others is walked first,
within limits.
"""

from dataclasses import dataclass
from typing import Any, Final

from millstream.registry.formats.avro import PRIMITIVES, AvroSchema

# Of the data as JSON, about; for each record.
CHARACTERS_MAX: Final = 16 << 20
DEPTH_MAX: Final = 200
# More for each byte of data cannot be explained with long names and null values alone.
_CHARACTERS_PER_BYTE_MAX: Final = 64
# With a comma; empty texts and small numbers have fewer.
_VALUE_CHARACTERS_MIN: Final = 4
_FIXED_BYTES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINT_BYTES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class _Cost:
    """The fewest bytes that a value takes, and its characters in JSON then."""

    bytes: int
    characters: int


class AvroBounds:
    """`check` before decoding."""

    def __init__(self, schema: AvroSchema) -> None:
        self._tree = schema.tree
        self._names = schema.names
        self._must_walk = False
        # Names of records around the part that is looked at.
        self._open: set[str] = set()
        self._cost(schema.tree)

    def check(self, payload: bytes) -> None:
        """Raises ValueError."""
        if self._must_walk:
            _Walk(self._names, payload).value(self._tree, depth=0)

    def _cost(self, schema: Any) -> _Cost:
        """Sets `_must_walk` on the way."""
        schema = _resolved(schema, self._names)
        if isinstance(schema, list):
            branches = [self._cost(one) for one in schema]
            worst = max(branches, key=lambda one: one.characters / (one.bytes + 1))
            return _Cost(worst.bytes + 1, worst.characters)
        kind = _kind(schema)
        if not isinstance(kind, str):
            return self._cost(kind)
        if kind in ("record", "error"):
            return self._record_cost(schema)
        if kind in ("array", "map"):
            items = self._cost(schema["items" if kind == "array" else "values"])
            key_bytes = int(kind == "map")
            self._note(_Cost(items.bytes + key_bytes, items.characters + 2))
            return _Cost(1, 2)
        if kind == "fixed":
            return _Cost(schema["size"], schema["size"] + 2)
        return _Cost(_FIXED_BYTES.get(kind, 1), 4)

    def _record_cost(self, schema: dict[str, Any]) -> _Cost:
        name = schema["name"]
        if name in self._open:
            self._must_walk = True
            return _Cost(1, 2)
        self._open.add(name)
        size = characters = 0
        for field in schema["fields"]:
            cost = self._cost(field["type"])
            size += cost.bytes
            characters += cost.characters + _name_characters(field)
        self._open.remove(name)
        return _Cost(size, characters + 2)

    def _note(self, items: _Cost) -> None:
        if items.characters > items.bytes * _CHARACTERS_PER_BYTE_MAX:
            self._must_walk = True


class _Walk:
    """Goes through the data without building anything. Whatever is wrong raises ValueError."""

    def __init__(self, names: dict[str, Any], payload: bytes) -> None:
        self._names = names
        self._payload = payload
        self._position = 0
        self._characters = 0

    def value(self, schema: Any, depth: int) -> None:
        schema = _resolved(schema, self._names)
        if depth > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
        if isinstance(schema, list):
            index = self._number()
            if not 0 <= index < len(schema):
                raise ValueError(f"the union has no branch {index}")
            self.value(schema[index], depth)
            return
        self._count(_VALUE_CHARACTERS_MIN)
        kind = _kind(schema)
        if not isinstance(kind, str):
            self.value(kind, depth + 1)
        elif kind in ("record", "error"):
            for field in schema["fields"]:
                self._count(_name_characters(field))
                self.value(field["type"], depth + 1)
        elif kind == "array":
            self._blocks(schema["items"], depth, has_keys=False)
        elif kind == "map":
            self._blocks(schema["values"], depth, has_keys=True)
        else:
            self._scalar(kind, schema)

    def _blocks(self, items: Any, depth: int, *, has_keys: bool) -> None:
        while count := self._number():
            if count < 0:
                # The size of the block follows.
                count = -count
                self._number()
            if count * _VALUE_CHARACTERS_MIN > CHARACTERS_MAX:
                raise ValueError(f"an array or map of {count:,} values")
            for _ in range(count):
                if has_keys:
                    self._skip(self._number())
                self.value(items, depth + 1)

    def _scalar(self, kind: str, schema: Any) -> None:
        if kind in _FIXED_BYTES:
            self._skip(_FIXED_BYTES[kind])
        elif kind == "fixed":
            self._skip(schema["size"])
        else:
            number = self._number()
            if kind in ("bytes", "string"):
                self._skip(number)

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._characters > CHARACTERS_MAX:
            raise ValueError(f"more than {CHARACTERS_MAX:,} characters as JSON")

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._payload) - self._position:
            raise ValueError("it ends within a value")
        self._position += size
        self._count(size)

    def _number(self) -> int:
        value = 0
        for number in range(_VARINT_BYTES_MAX):
            if self._position >= len(self._payload):
                raise ValueError("it ends within a number")
            byte = self._payload[self._position]
            self._position += 1
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number has more than 64 bits")


def _resolved(schema: Any, names: dict[str, Any]) -> Any:
    if isinstance(schema, str) and schema not in PRIMITIVES:
        return names[schema]
    return schema


def _kind(schema: Any) -> Any:
    return schema if isinstance(schema, str) else schema["type"]


def _name_characters(field: dict[str, Any]) -> int:
    return len(field["name"]) + 6
