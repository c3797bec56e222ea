"""Data with the id of its schema in front, as serializers send it, to JSON and back.

The data is a zero byte, the id in four bytes, and the payload. That of Protobuf begins with the
place of the message in its file. JSON is plain: a union is written as its value, bytes as text of
the characters 0 to 255, and logical types as the numbers or bytes below them, so that what was
decoded can be encoded again.
"""

import io
import json
from collections.abc import Sequence
from typing import Any, Final, assert_never

import fastavro
from fastavro.validation import ValidationError
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass
from jsonschema.exceptions import ValidationError as JsonInvalid
from jsonschema.validators import Draft7Validator, validator_for

from millstream.registry.client import RegistryClient
from millstream.registry.formats.avro import PRIMITIVES, AvroSchema, parse_avro
from millstream.registry.formats.avro_bounds import AvroBounds
from millstream.registry.formats.json_schema import JsonSchema, parse_json_schema
from millstream.registry.formats.protobuf import ProtobufSchema, parse_protobuf
from millstream.registry.formats.text import Dependency
from millstream.registry.model import Content, SchemaType
from millstream.registry.records import compact_json

_MAGIC: Final = 0
_HEADER_BYTES: Final = 5
_INDEXES_MAX: Final = 100
# What people call the types.
_KINDS: Final = {
    SchemaType.AVRO: "Avro",
    SchemaType.JSON: "JSON Schema",
    SchemaType.PROTOBUF: "Protobuf",
}


def split(data: bytes) -> tuple[int, bytes] | None:
    """The id of the schema and the payload; None for data without an id."""
    if len(data) < _HEADER_BYTES or data[0] != _MAGIC:
        return None
    return int.from_bytes(data[1:_HEADER_BYTES], "big"), data[_HEADER_BYTES:]


def join(schema_id: int, payload: bytes) -> bytes:
    return bytes([_MAGIC]) + schema_id.to_bytes(4, "big") + payload


class Codec:
    """JSON to a payload and back, with one schema."""

    def __init__(self, content: Content, dependencies: Sequence[Dependency] = ()) -> None:
        """Raises InvalidSchema."""
        self.kind = _KINDS[content.type]
        self._schema: AvroSchema | JsonSchema | ProtobufSchema
        # Of Avro only.
        self._bounds: AvroBounds | None = None
        match content.type:
            case SchemaType.AVRO:
                plain = [Dependency(one.name, _plain(one.text)) for one in dependencies]
                parsed = parse_avro(_plain(content.text), plain)
                tree = _inlined(parsed.tree, parsed.names, set())
                self._schema = AvroSchema(parsed.text, tree, parsed.names)
                self._bounds = AvroBounds(self._schema)
            case SchemaType.JSON:
                self._schema = parse_json_schema(content.text, dependencies)
            case SchemaType.PROTOBUF:
                self._schema = parse_protobuf(content.text, dependencies)
            case _:
                assert_never(content.type)

    def encode(self, text: bytes) -> bytes:
        """Raises ValueError."""
        match self._schema:
            case AvroSchema():
                return _encode_avro(self._schema, _load(text))
            case JsonSchema():
                return _encode_json(self._schema, _load(text))
            case ProtobufSchema():
                return _encode_protobuf(self._schema, text)

    def decode(self, payload: bytes) -> bytes:
        """Raises ValueError."""
        match self._schema:
            case AvroSchema():
                assert self._bounds is not None
                return _decode_avro(self._schema, self._bounds, payload)
            case JsonSchema():
                return payload
            case ProtobufSchema():
                return _decode_protobuf(self._schema, payload)


def load_codec(client: RegistryClient, schema_id: int) -> Codec:
    """Raises RegistryRefused and InvalidSchema."""
    content = client.content(schema_id)
    return Codec(content, client.dependencies(content))


def _load(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise ValueError(f"not JSON: {wrong}") from None


# -- Avro --------------------------------------------------------------------------------


def _plain(text: str) -> str:
    """The schema without logical types."""
    return compact_json(_without_logical_types(json.loads(text)))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: part if name == "default" else _without_logical_types(part)
        for name, part in schema.items()
        if name != "logicalType"
    }


def _inlined(schema: Any, names: dict[str, Any], seen: set[str]) -> Any:
    """The schema with each name defined where it is first used, as fastavro wants it."""
    if isinstance(schema, str):
        if schema in PRIMITIVES or schema in seen:
            return schema
        schema = names[schema]
    if isinstance(schema, list):
        return [_inlined(one, names, seen) for one in schema]
    found = dict(schema)
    if "name" in found:
        seen.add(found["name"])
    for part in ("type", "items", "values"):
        if part in found and (not isinstance(found[part], str) or found[part] in names):
            found[part] = _inlined(found[part], names, seen)
    if "fields" in found:
        found["fields"] = [
            {**field, "type": _inlined(field["type"], names, seen)} for field in found["fields"]
        ]
    return found


def _encode_avro(schema: AvroSchema, value: Any) -> bytes:
    datum = _from_json(schema.tree, value, schema.names, "value")
    output = io.BytesIO()
    try:
        fastavro.schemaless_writer(output, schema.tree, datum)
    except (ValueError, TypeError, KeyError, OverflowError) as wrong:
        raise ValueError(f"not a value of the schema: {wrong}") from None
    return output.getvalue()


def _from_json(schema: Any, value: Any, names: dict[str, Any], path: str) -> Any:
    """The value as fastavro takes it. Raises ValueError."""
    if isinstance(schema, list):
        return _branch_from_json(schema, value, names, path)
    if isinstance(schema, str) and schema not in PRIMITIVES:
        schema = names[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return _from_json(kind, value, names, path)
    if kind in ("record", "error") and isinstance(value, dict):
        return _record_from_json(schema, value, names, path)
    if kind == "array" and isinstance(value, list):
        return [
            _from_json(schema["items"], one, names, f"{path}[{index}]")
            for index, one in enumerate(value)
        ]
    if kind == "map" and isinstance(value, dict):
        return {
            key: _from_json(schema["values"], one, names, f"{path}.{key}")
            for key, one in value.items()
        }
    if kind in ("bytes", "fixed") and isinstance(value, str):
        try:
            value = value.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError(f"{path}: bytes are characters from 0 to 255") from None
    try:
        is_valid = fastavro.validate(value, schema, raise_errors=False)
    except (ValidationError, TypeError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{path}: {value!r} is not of type {kind}")
    return value


def _record_from_json(
    schema: dict[str, Any], value: dict[str, Any], names: dict[str, Any], path: str
) -> dict[str, Any]:
    fields = {field["name"]: field for field in schema["fields"]}
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise ValueError(f"{path}: the schema has no field {unknown[0]!r}")
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = _from_json(field["type"], value[name], names, f"{path}.{name}")
        elif "default" in field:
            found[name] = _from_json(field["type"], field["default"], names, f"{path}.{name}")
        else:
            raise ValueError(f"{path}: the field {name!r} is missing")
    return found


def _branch_from_json(branches: list[Any], value: Any, names: dict[str, Any], path: str) -> Any:
    """Of the first branch that takes the value."""
    problem = ValueError(f"{path}: no branch of the union takes {value!r}")
    for branch in branches:
        try:
            found = _from_json(branch, value, names, path)
        except ValueError as wrong:
            problem = wrong if len(branches) == 2 and "null" in branches else problem
            continue
        name = branch if isinstance(branch, str) else branch.get("name")
        # With its name, fastavro need not guess between records.
        return (name, found) if isinstance(name, str) and name in names else found
    raise problem


def _decode_avro(schema: AvroSchema, bounds: AvroBounds, payload: bytes) -> bytes:
    try:
        bounds.check(payload)
        value = fastavro.schemaless_reader(io.BytesIO(payload), schema.tree, None)
        text = json.dumps(value, ensure_ascii=False, default=lambda data: data.decode("latin-1"))
    except (ValueError, TypeError, IndexError, KeyError, EOFError, OverflowError) as wrong:
        raise ValueError(f"not data of the schema: {wrong}") from None
    except RecursionError:
        raise ValueError("not data of the schema: nested too deeply") from None
    return text.encode("utf-8", "replace")


# -- JSON --------------------------------------------------------------------------------


def _encode_json(schema: JsonSchema, value: Any) -> bytes:
    kind = validator_for(schema.tree, default=Draft7Validator)
    validator = kind(schema.tree, registry=schema.resources)
    try:
        validator.validate(value)
    except JsonInvalid as wrong:
        raise ValueError(f"{wrong.json_path}: {wrong.message[:500]}") from None
    return compact_json(value).encode()


# -- Protobuf ----------------------------------------------------------------------------


def _encode_protobuf(schema: ProtobufSchema, text: bytes) -> bytes:
    """The first message of the file, whose place is written as a zero."""
    messages = list(schema.file.message_types_by_name.values())
    if not messages:
        raise ValueError("the schema has no message")
    message = GetMessageClass(messages[0])()
    try:
        json_format.Parse(text, message)
        data: bytes = message.SerializeToString()
    except (json_format.ParseError, EncodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ValueError(f"not a {messages[0].full_name}: {wrong}") from None
    return b"\0" + data


def _decode_protobuf(schema: ProtobufSchema, payload: bytes) -> bytes:
    descriptor, start = _find_message(schema, payload)
    message = GetMessageClass(descriptor)()
    try:
        message.ParseFromString(payload[start:])
    except DecodeError as wrong:
        raise ValueError(f"not a {descriptor.full_name}: {wrong}") from None
    text: str = json_format.MessageToJson(
        message, indent=None, preserving_proto_field_name=True, ensure_ascii=False
    )
    return text.encode()


def _find_message(schema: ProtobufSchema, payload: bytes) -> tuple[Descriptor, int]:
    """The message that the indexes in front lead to, and where they end."""
    count, position = _read_zigzag(payload, 0)
    if not 0 <= count <= _INDEXES_MAX:
        raise ValueError("not data of Protobuf: no place of a message in front")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(payload, position)
        indexes.append(index)
    found: Any = None
    for index in indexes or [0]:
        among = schema.file.message_types_by_name.values() if found is None else found.nested_types
        messages = list(among)
        if not 0 <= index < len(messages):
            raise ValueError("not data of the schema: it has no such message")
        found = messages[index]
    return found, position


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    """A number, and the position behind it."""
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("not data of Protobuf: it ends in a number")
