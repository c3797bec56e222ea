"""Reading and writing declared messages, in any version.

A reader or writer is built from a declaration when a version is first used: a list of
steps, where neighbouring numbers are one step. Readers are bounded: they never read past the
frame, check every count against the remaining bytes before they allocate, and skip unknown
tags (see `cursor`). Anything wrong raises ProtocolError.

Produce, Fetch and OffsetCommit have hand-written codecs beside this one.
"""

import struct
import sys
import types
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin
from uuid import UUID

from millstream.errors import ProtocolError
from millstream.model import NO_TOPIC_ID
from millstream.wire import output
from millstream.wire.cursor import Cursor
from millstream.wire.message import ALL_VERSIONS, Api, KeptArray, Message, Request

M = TypeVar("M", bound=Message)
Read = Callable[[Cursor], Any]
Write = Callable[[bytearray, Any], None]

_NUMBERS: Final = frozenset("bhHiqd?")


def request_reader(request: type[Request[M]], version: int) -> Callable[[Cursor], Request[M]]:
    return cast("Callable[[Cursor], Request[M]]", _request_reader(request.api, version))


def request_writer(
    request: type[Request[M]], version: int
) -> Callable[[bytearray, Request[M]], None]:
    return cast("Callable[[bytearray, Request[M]], None]", _request_writer(request.api, version))


def response_reader(request: type[Request[M]], version: int) -> Callable[[Cursor], M]:
    return cast("Callable[[Cursor], M]", _response_reader(request.api, version))


def response_writer(request: type[Request[M]], version: int) -> Callable[[bytearray, M], None]:
    return cast("Callable[[bytearray, M], None]", _response_writer(request.api, version))


# The caches are untyped, hence the four functions above.
@cache
def _request_reader(api: Api, version: int) -> Read:
    return _reader(api.request, version, flexible=api.is_flexible(version))


@cache
def _request_writer(api: Api, version: int) -> Write:
    return _writer(api.request, version, flexible=api.is_flexible(version))


@cache
def _response_reader(api: Api, version: int) -> Read:
    return _reader(api.response, version, flexible=api.is_flexible(version))


@cache
def _response_writer(api: Api, version: int) -> Write:
    return _writer(api.response, version, flexible=api.is_flexible(version))


class Field:
    """One field of a message as it is in one version."""

    __slots__ = ("default", "is_array", "is_nullable", "is_on_wire", "kind", "name", "tag")

    def __init__(self, message: type[Message], name: str, version: int) -> None:
        namespace = vars(sys.modules[message.__module__])
        annotation = eval(message.declared_fields[name], namespace)
        inner, can_be_null = _without_none(annotation)
        versions = message.field_versions.get(name, ALL_VERSIONS)
        self.name = name
        self.is_array = get_origin(inner) is list
        # A code of `struct` for a number, "bytes", or the class of anything else.
        self.kind = _kind(get_args(inner)[0] if self.is_array else inner)
        self.is_nullable = can_be_null and version >= versions.nullable_since
        self.is_on_wire = versions.includes(version)
        self.tag = versions.tag
        self.default = getattr(message, name, None if can_be_null else self._zero())

    @property
    def is_number(self) -> bool:
        return self.kind in _NUMBERS and not self.is_array

    def _zero(self) -> object:
        if self.is_array:
            return []
        if self.kind == "bytes":
            return b""
        if self.kind is UUID:
            return NO_TOPIC_ID
        if isinstance(self.kind, type):
            return self.kind()
        return 0 if self.kind != "?" else False


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        [inner] = [each for each in get_args(annotation) if each is not types.NoneType]
        return inner, True
    return annotation, False


def _kind(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return annotation.__metadata__[0]
    return "?" if annotation is bool else annotation


def fields_of(message: type[Message], version: int) -> list[Field]:
    return [Field(message, name, version) for name in message.declared_fields]


# -- reading ---------------------------------------------------------------------------


def _reader(message: type[M], version: int, *, flexible: bool) -> Callable[[Cursor], M]:
    fields = fields_of(message, version)
    on_wire = [field for field in fields if field.is_on_wire]
    steps = [
        _read_step(run, version, flexible=flexible)
        for run in _runs(field for field in on_wire if field.tag is None)
    ]
    tagged = {
        field.tag: (field.name, _value_reader(field, version, flexible=flexible))
        for field in on_wire
        if field.tag is not None
    }
    defaults = {
        field.name: field.default
        for field in fields
        if not field.is_on_wire or field.tag is not None
    }
    new = message.__new__

    def read(cursor: Cursor) -> M:
        found = new(message)
        values = found.__dict__
        values.update(defaults)
        for name, read_value in steps:
            if name is None:
                values.update(read_value(cursor))
            else:
                values[name] = read_value(cursor)
        if tagged:
            _read_tags(cursor, tagged, values)
        elif flexible:
            cursor.skip_tags()
        return found

    return read


def _runs(fields: Iterable[Field]) -> list[list[Field]]:
    """Neighbouring numbers together, everything else alone."""
    runs: list[list[Field]] = []
    for field in fields:
        if runs and field.is_number and runs[-1][-1].is_number:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _read_step(run: list[Field], version: int, *, flexible: bool) -> tuple[str | None, Read]:
    """What to read, and its name; without a name it returns several, as pairs."""
    if len(run) == 1:
        return run[0].name, _value_reader(run[0], version, flexible=flexible)
    layout = struct.Struct(">" + "".join(field.kind for field in run))
    names = [field.name for field in run]
    return None, lambda cursor: zip(names, cursor.unpack(layout), strict=True)


def _read_tags(cursor: Cursor, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]) -> None:
    for tag, size in cursor.tags():
        end = cursor.position + size
        if tag in tagged:
            name, read_value = tagged[tag]
            values[name] = read_value(cursor)
            if cursor.position != end:
                raise ProtocolError(f"tagged field {name} has the wrong size")
        else:
            cursor.take(size)


_READ: dict[object, Read] = {
    "b": Cursor.int8,
    "h": Cursor.int16,
    "H": Cursor.uint16,
    "i": Cursor.int32,
    "q": Cursor.int64,
    "d": Cursor.float64,
    "?": Cursor.boolean,
    UUID: Cursor.uuid,
}
# Keyed by (kind, is flexible, is nullable).
_READ_SIZED: dict[tuple[object, bool, bool], Read] = {
    (str, False, False): Cursor.string,
    (str, False, True): Cursor.nullable_string,
    (str, True, False): Cursor.compact_string,
    (str, True, True): Cursor.compact_nullable_string,
    ("bytes", False, False): Cursor.bytes_,
    ("bytes", False, True): Cursor.nullable_bytes,
    ("bytes", True, False): Cursor.compact_bytes,
    ("bytes", True, True): Cursor.compact_nullable_bytes,
}


def _value_reader(field: Field, version: int, *, flexible: bool) -> Read:
    kind = field.kind
    if field.is_array:
        return _array_reader(field, version, flexible=flexible)
    if kind is str or kind == "bytes":
        return _READ_SIZED[kind, flexible, field.is_nullable]
    if kind in _READ:
        return _READ[kind]
    read_one = _reader(kind, version, flexible=flexible)
    if field.is_nullable:
        return lambda cursor: None if cursor.int8() < 0 else read_one(cursor)
    return read_one


def _array_reader(field: Field, version: int, *, flexible: bool) -> Read:
    read_count = Cursor.compact_array_count if flexible else Cursor.array_count
    kind, is_nullable = field.kind, field.is_nullable
    problem = f"{field.name} is null"

    def read_numbers(cursor: Cursor) -> list[Any] | None:
        count = read_count(cursor)
        if count >= 0:
            return list(cursor.unpack(_numbers(kind, count)))
        if not is_nullable:
            raise ProtocolError(problem)
        return None

    def read_array(cursor: Cursor) -> list[Any] | None:
        count = read_count(cursor)
        if count >= 0:
            return [read_one(cursor) for _ in cursor.each_of(count)]
        if not is_nullable:
            raise ProtocolError(problem)
        return None

    if kind in _NUMBERS:
        return read_numbers
    if kind is str:
        read_one = _READ_SIZED[str, flexible, False]
    else:
        read_one = _READ.get(kind) or _reader(kind, version, flexible=flexible)
    return read_array


# Arrays are mostly replicas of a partition: the same few lengths again and again.
@lru_cache(maxsize=256)
def _numbers(code: str, count: int) -> struct.Struct:
    return struct.Struct(f">{count}{code}")


# -- writing ---------------------------------------------------------------------------


def _writer(message: type[M], version: int, *, flexible: bool) -> Callable[[bytearray, M], None]:
    on_wire = [field for field in fields_of(message, version) if field.is_on_wire]
    steps = [
        _write_step(run, version, flexible=flexible)
        for run in _runs(field for field in on_wire if field.tag is None)
    ]
    tagged = sorted(
        (field.tag, field.name, field.default, _value_writer(field, version, flexible=flexible))
        for field in on_wire
        if field.tag is not None
    )

    def write(out: bytearray, value: M) -> None:
        for get, write_value in steps:
            write_value(out, get(value))
        if tagged:
            _write_tags(out, tagged, value)
        elif flexible:
            out.append(0)

    return write


def _write_step(
    run: list[Field], version: int, *, flexible: bool
) -> tuple[Callable[[Message], Any], Write]:
    get = attrgetter(*(field.name for field in run))
    if len(run) == 1:
        return get, _value_writer(run[0], version, flexible=flexible)
    pack = struct.Struct(">" + "".join(field.kind for field in run)).pack

    def write_numbers(out: bytearray, values: tuple[Any, ...]) -> None:
        out += pack(*values)

    return get, write_numbers


def _write_tags(
    out: bytearray, tagged: list[tuple[int, str, object, Write]], message: Message
) -> None:
    present = [row for row in tagged if getattr(message, row[1]) != row[2]]
    output.unsigned_varint(out, len(present))
    for tag, name, _, write_value in present:
        body = bytearray()
        write_value(body, getattr(message, name))
        output.unsigned_varint(out, tag)
        output.unsigned_varint(out, len(body))
        out += body


_WRITE: dict[object, Write] = {
    "b": output.int8,
    "h": output.int16,
    "H": output.uint16,
    "i": output.int32,
    "q": output.int64,
    "d": output.float64,
    "?": output.boolean,
    UUID: output.uuid_,
}
_WRITE_SIZED: dict[tuple[object, bool, bool], Write] = {
    (str, False, False): output.string,
    (str, False, True): output.nullable_string,
    (str, True, False): output.compact_string,
    (str, True, True): output.compact_nullable_string,
    ("bytes", False, False): output.bytes_,
    ("bytes", False, True): output.nullable_bytes,
    ("bytes", True, False): output.compact_bytes,
    ("bytes", True, True): output.compact_nullable_bytes,
}


def _value_writer(field: Field, version: int, *, flexible: bool) -> Write:
    kind = field.kind
    if field.is_array:
        return _array_writer(field, version, flexible=flexible)
    if kind is str or kind == "bytes":
        return _WRITE_SIZED[kind, flexible, field.is_nullable]
    if kind in _WRITE:
        return _WRITE[kind]
    write_one = _writer(kind, version, flexible=flexible)
    return _nullable_writer(write_one) if field.is_nullable else write_one


def _nullable_writer(write_one: Write) -> Write:
    def write_nullable(out: bytearray, value: Message | None) -> None:
        output.int8(out, -1 if value is None else 1)
        if value is not None:
            write_one(out, value)

    return write_nullable


def _array_writer(field: Field, version: int, *, flexible: bool) -> Write:
    write_count = output.compact_array_count if flexible else output.array_count
    kind = field.kind

    def write_numbers(out: bytearray, items: list[Any] | None) -> None:
        if items is None:
            write_count(out, -1)
        else:
            write_count(out, len(items))
            out += _numbers(kind, len(items)).pack(*items)

    def write_items(out: bytearray, items: list[Any]) -> None:
        write_count(out, len(items))
        for item in output.each_of(out, items):
            write_one(out, item)

    def write_array(out: bytearray, items: list[Any] | None) -> None:
        if items is None:
            write_count(out, -1)
        elif isinstance(items, KeptArray):
            out += items.encoded_by(write_items)
        else:
            write_items(out, items)

    if kind in _NUMBERS:
        return write_numbers
    if kind is str:
        write_one = _WRITE_SIZED[str, flexible, False]
    else:
        write_one = _WRITE.get(kind) or _writer(kind, version, flexible=flexible)
    return write_array
