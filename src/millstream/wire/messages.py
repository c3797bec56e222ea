"""Every request and response in every version, from kio's message classes.

kio describes each message as one dataclass per version. Here those classes serve as
schemas only: we read and write with our own bounded code (kio's native reader allocates
whatever count a frame claims, and a hostile frame ends the process). One `Struct` shape
serves all versions: a field that a request's version lacks has the newest version's
default, a field that a response's version lacks is not written. So handlers see one
shape. Names are kio's, with `_ms` added to times, which are plain integers.

Produce and Fetch have hand-written codecs beside this one.
"""

import datetime
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from millstream.errors import ProtocolError
from millstream.model import NO_TOPIC_ID
from millstream.wire import output, vendor
from millstream.wire.apis import APIS
from millstream.wire.cursor import Cursor


class Struct:
    """A message or a part of one: named values."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    def __repr__(self) -> str:
        return f"Struct({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # values may be lists

    if TYPE_CHECKING:
        # The wire's shapes are known at run time only; handlers turn them into types.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


Read = Callable[[Cursor], Any]
Write = Callable[[bytearray, Any], None]


@cache
def request_reader(api_key: int, version: int) -> Callable[[Cursor], Struct]:
    return _struct_reader(
        _schema(api_key, version, "request"), _schema(api_key, _newest(api_key), "request")
    )


@cache
def request_writer(api_key: int, version: int) -> Callable[[bytearray, Struct], None]:
    return _struct_writer(_schema(api_key, version, "request"))


@cache
def response_reader(api_key: int, version: int) -> Callable[[Cursor], Struct]:
    return _struct_reader(
        _schema(api_key, version, "response"), _schema(api_key, _newest(api_key), "response")
    )


@cache
def response_writer(api_key: int, version: int) -> Callable[[bytearray, Struct], None]:
    return _struct_writer(_schema(api_key, version, "response"))


def _newest(api_key: int) -> int:
    return APIS[api_key].max_version


def _schema(api_key: int, version: int, kind: str) -> type:
    if api_key >= vendor.KEYS_FROM:
        request, response = vendor.SCHEMAS[api_key]
        return request if kind == "request" else response
    # Imported on first use: each message module costs some milliseconds.
    from kio.index import load_request_schema, load_response_schema

    load = load_request_schema if kind == "request" else load_response_schema
    return load(api_key, version)


def _name(field: "Field[Any]") -> str:
    kafka_type = str(field.metadata.get("kafka_type", ""))
    is_time = kafka_type.startswith(("timedelta", "datetime"))
    return f"{field.name}_ms" if is_time and not field.name.endswith("_ms") else field.name


def _unwrap_optional(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not types.NoneType]
        return inner[0], True
    return annotation, False


def _default(field: "Field[Any]") -> Any:
    """The value of a field that is not on the wire."""
    annotation, is_nullable = _unwrap_optional(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if field.default is not MISSING:
        return _plain(field.default, kafka_type)
    if is_nullable and kafka_type != "uuid":
        return None
    if get_origin(annotation) is tuple:
        return []
    if is_dataclass(annotation):
        return Struct(**{_name(f): _default(f) for f in fields(annotation)})
    zero: dict[object, object] = {
        "string": "",
        "bytes": b"",
        "records": None,
        "uuid": NO_TOPIC_ID,
        "bool": False,
        "datetime_i64": -1,
    }
    return zero.get(kafka_type, 0)


def _plain(value: Any, kafka_type: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return Struct(
            **{
                _name(f): _plain(getattr(value, f.name), f.metadata.get("kafka_type"))
                for f in fields(value)
            }
        )
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, tuple):
        return [_plain(item, kafka_type) for item in value]
    if value is None and kafka_type == "uuid":
        return NO_TOPIC_ID
    if value is None and kafka_type == "datetime_i64":
        return -1
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return str(value) if isinstance(value, str) else value


_READ: dict[str, Read] = {
    "int8": Cursor.int8,
    "int16": Cursor.int16,
    "uint16": Cursor.uint16,
    "int32": Cursor.int32,
    "int64": Cursor.int64,
    "float64": Cursor.float64,
    "bool": Cursor.boolean,
    "uuid": Cursor.uuid,
    "error_code": Cursor.int16,
    "timedelta_i32": Cursor.int32,
    "timedelta_i64": Cursor.int64,
    "datetime_i64": Cursor.int64,
}
_WRITE: dict[str, Write] = {
    "int8": output.int8,
    "int16": output.int16,
    "uint16": output.uint16,
    "int32": output.int32,
    "int64": output.int64,
    "float64": output.float64,
    "bool": output.boolean,
    "uuid": output.uuid_,
    "error_code": output.int16,
    "timedelta_i32": output.int32,
    "timedelta_i64": output.int64,
    "datetime_i64": output.int64,
}
# Keyed by (is flexible, is nullable).
_READ_STRING: dict[tuple[bool, bool], Read] = {
    (False, False): Cursor.string,
    (False, True): Cursor.nullable_string,
    (True, False): Cursor.compact_string,
    (True, True): Cursor.compact_nullable_string,
}
_READ_BYTES: dict[tuple[bool, bool], Read] = {
    (False, False): Cursor.bytes_,
    (False, True): Cursor.nullable_bytes,
    (True, False): Cursor.compact_bytes,
    (True, True): Cursor.compact_nullable_bytes,
}
_WRITE_STRING: dict[tuple[bool, bool], Write] = {
    (False, False): output.string,
    (False, True): output.nullable_string,
    (True, False): output.compact_string,
    (True, True): output.compact_nullable_string,
}
_WRITE_BYTES: dict[tuple[bool, bool], Write] = {
    (False, False): output.bytes_,
    (False, True): output.nullable_bytes,
    (True, False): output.compact_bytes,
    (True, True): output.compact_nullable_bytes,
}


def _scalar_reader(kafka_type: str, *, flexible: bool, nullable: bool) -> Read:
    if kafka_type == "string":
        return _READ_STRING[flexible, nullable]
    if kafka_type in ("bytes", "records"):
        return _READ_BYTES[flexible, nullable]
    return _READ[kafka_type]


def _scalar_writer(kafka_type: str, *, flexible: bool, nullable: bool) -> Write:
    if kafka_type == "string":
        return _WRITE_STRING[flexible, nullable]
    if kafka_type in ("bytes", "records"):
        return _WRITE_BYTES[flexible, nullable]
    return _WRITE[kafka_type]


def _field_reader(field: "Field[Any]", newest: Any, *, flexible: bool) -> Read:
    annotation, nullable = _unwrap_optional(field.type)
    is_array = get_origin(annotation) is tuple
    inner = get_args(annotation)[0] if is_array else annotation
    newest_inner = None
    if newest is not None:
        newest_annotation, _ = _unwrap_optional(newest)
        if get_origin(newest_annotation) is tuple:
            newest_annotation = get_args(newest_annotation)[0]
        newest_inner = newest_annotation if is_dataclass(newest_annotation) else None
    if is_dataclass(inner):
        assert isinstance(inner, type)
        read_one: Read = _struct_reader(inner, newest_inner)
    else:
        read_one = _scalar_reader(
            str(field.metadata["kafka_type"]),
            flexible=flexible,
            nullable=nullable and not is_array and "tag" not in field.metadata,
        )
    if is_array:
        return _array_reader(read_one, flexible=flexible)
    if is_dataclass(inner) and nullable:
        return lambda cursor: None if cursor.int8() < 0 else read_one(cursor)
    return read_one


def _array_reader(read_one: Read, *, flexible: bool) -> Read:
    read_count: Read = Cursor.compact_array_count if flexible else Cursor.array_count

    def read_array(cursor: Cursor) -> list[Any] | None:
        count = read_count(cursor)
        return None if count < 0 else [read_one(cursor) for _ in range(count)]

    return read_array


def _struct_reader(schema: type, newest: Any) -> Callable[[Cursor], Struct]:
    flexible = bool(getattr(schema, "__flexible__"))  # noqa: B009 - kio's own marker
    newest_fields = {f.name: f for f in fields(newest)} if newest is not None else {}
    positional: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    defaults: dict[str, Any] = {}
    for field in fields(schema):
        twin = newest_fields.pop(field.name, None)
        read = _field_reader(field, twin.type if twin else None, flexible=flexible)
        if "tag" in field.metadata:
            tagged[int(field.metadata["tag"])] = (_name(field), read)
            defaults[_name(field)] = _default(field)
        else:
            positional.append((_name(field), read))
    for field in newest_fields.values():
        defaults[_name(field)] = _default(field)

    def read_struct(cursor: Cursor) -> Struct:
        struct = Struct()
        values = struct.__dict__
        values.update(defaults)
        for name, read in positional:
            values[name] = read(cursor)
        if flexible:
            for tag, size in cursor.tags():
                end = cursor.position + size
                if tag in tagged:
                    name, read = tagged[tag]
                    values[name] = read(cursor)
                    if cursor.position != end:
                        raise ProtocolError(f"tagged field {name} has the wrong size")
                else:
                    cursor.take(size)
        return struct

    return read_struct


def _field_writer(field: "Field[Any]", *, flexible: bool) -> Write:
    annotation, nullable = _unwrap_optional(field.type)
    is_array = get_origin(annotation) is tuple
    inner = get_args(annotation)[0] if is_array else annotation
    if is_dataclass(inner):
        assert isinstance(inner, type)
        write_one: Write = _struct_writer(inner)
    else:
        write_one = _scalar_writer(
            str(field.metadata["kafka_type"]),
            flexible=flexible,
            nullable=nullable and not is_array and "tag" not in field.metadata,
        )
    if is_array:
        return _array_writer(write_one, flexible=flexible)
    if is_dataclass(inner) and nullable:
        return _nullable_struct_writer(write_one)
    return write_one


def _array_writer(write_one: Write, *, flexible: bool) -> Write:
    write_count: Write = output.compact_array_count if flexible else output.array_count

    def write_array(out: bytearray, items: list[Any] | None) -> None:
        if items is None:
            write_count(out, -1)
            return
        write_count(out, len(items))
        for item in items:
            write_one(out, item)

    return write_array


def _nullable_struct_writer(write_one: Write) -> Write:
    def write_nullable(out: bytearray, value: Struct | None) -> None:
        output.int8(out, -1 if value is None else 1)
        if value is not None:
            write_one(out, value)

    return write_nullable


def _struct_writer(schema: type) -> Callable[[bytearray, Struct], None]:
    flexible = bool(getattr(schema, "__flexible__"))  # noqa: B009 - kio's own marker
    positional: list[tuple[str, Write, Any, bool]] = []
    tagged: list[tuple[int, str, Write, Any]] = []
    for field in fields(schema):
        write = _field_writer(field, flexible=flexible)
        if "tag" in field.metadata:
            tagged.append((int(field.metadata["tag"]), _name(field), write, _default(field)))
        else:
            is_required = field.default is MISSING and not _name(field).startswith("throttle")
            positional.append((_name(field), write, _default(field), is_required))
    tagged.sort(key=lambda row: row[0])

    def write_struct(out: bytearray, struct: Struct) -> None:
        values = struct.__dict__
        for name, write, default, is_required in positional:
            # A misspelt name in a handler must not go out as a default.
            write(out, values[name] if is_required else values.get(name, default))
        if flexible:
            present = [row for row in tagged if values.get(row[1], row[3]) != row[3]]
            output.unsigned_varint(out, len(present))
            for tag, name, write, _ in present:
                body = bytearray()
                write(body, values[name])
                output.unsigned_varint(out, tag)
                output.unsigned_varint(out, len(body))
                out += body

    return write_struct
