# ruff: noqa: E501 (a case is a line)
"""What may follow what, by the documentation of Avro, JSON Schema compatibility and Protobuf.

`reads_old`: the new schema reads data of the old one (BACKWARD). `is_read_by_old`: the old one reads
data of the new one (FORWARD).
"""

import json
from dataclasses import dataclass

from millstream.registry.model import SchemaType


@dataclass(frozen=True, slots=True)
class Case:
    type: SchemaType
    name: str
    old: str
    new: str
    reads_old: bool
    is_read_by_old: bool


def _record(*fields: object, name: str = "R", **attributes: object) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **attributes})


def _field(name: str, kind: object, **attributes: object) -> dict[str, object]:
    return {"name": name, "type": kind, **attributes}


def _enum(*symbols: str, **attributes: object) -> str:
    return json.dumps({"type": "enum", "name": "E", "symbols": list(symbols), **attributes})


A = _field("a", "string")
_NODE = _record(_field("next", ["null", "R"]), A)

_AVRO: list[tuple[str, str, str, bool, bool]] = [
    ("the same", _record(A), _record(A), True, True),
    ("a field with a default is added", _record(A), _record(A, _field("b", "int", default=1)), True, True),
    ("a field without a default is added", _record(A), _record(A, _field("b", "int")), False, True),
    ("a field without a default is removed", _record(A, _field("b", "int")), _record(A), True, False),
    ("a field with a default is removed", _record(A, _field("b", "int", default=1)), _record(A), True, True),
    ("a field gets a default", _record(A), _record(_field("a", "string", default="")), True, True),
    ("a field is renamed", _record(A), _record(_field("b", "string")), False, False),
    ("a field is renamed with an alias", _record(A), _record(_field("b", "string", aliases=["a"])), True, False),
    ("the order of fields changes", _record(A, _field("b", "int")), _record(_field("b", "int"), A), True, True),
    ("documentation is added", _record(A), _record(A, doc="what it is"), True, True),
    ("int becomes long", '"int"', '"long"', True, False),
    ("int becomes float", '"int"', '"float"', True, False),
    ("int becomes double", '"int"', '"double"', True, False),
    ("long becomes float", '"long"', '"float"', True, False),
    ("long becomes double", '"long"', '"double"', True, False),
    ("float becomes double", '"float"', '"double"', True, False),
    ("string becomes bytes", '"string"', '"bytes"', True, True),
    ("string becomes int", '"string"', '"int"', False, False),
    ("boolean becomes int", '"boolean"', '"int"', False, False),
    ("a type becomes a union with it", '"string"', '["null","string"]', True, False),
    ("a branch is added to a union", '["null","string"]', '["null","string","int"]', True, False),
    ("a branch is removed from a union", '["null","string"]', '["null"]', False, True),
    ("the order of branches changes", '["null","string"]', '["string","null"]', True, True),
    ("a symbol is added to an enum", _enum("A"), _enum("A", "B"), True, False),
    ("a symbol is added to an enum with a default", _enum("A", default="A"), _enum("A", "B", default="A"), True, True),
    ("a symbol is removed from an enum", _enum("A", "B"), _enum("A"), False, True),
    ("a fixed gets longer", '{"type":"fixed","name":"F","size":4}', '{"type":"fixed","name":"F","size":8}', False, False),
    ("a record is renamed", _record(A), _record(A, name="S"), False, False),
    ("a record is renamed with an alias", _record(A), _record(A, name="S", aliases=["R"]), True, False),
    ("a namespace changes", _record(A), _record(A, namespace="other"), True, True),
    ("items of an array are promoted", '{"type":"array","items":"int"}', '{"type":"array","items":"long"}', True, False),
    ("values of a map change", '{"type":"map","values":"int"}', '{"type":"map","values":"string"}', False, False),
    ("an array becomes a map", '{"type":"array","items":"int"}', '{"type":"map","values":"int"}', False, False),
    ("a recursive record gets a field", _NODE, _record(_field("next", ["null", "R"]), A, _field("b", "int", default=0)), True, True),
    ("a logical type is added", '"long"', '{"type":"long","logicalType":"timestamp-millis"}', True, True),
]  # fmt: skip


def _object(properties: dict[str, object] | None = None, **attributes: object) -> str:
    return json.dumps({"type": "object", "properties": properties or {}, **attributes})


_CLOSED = {"additionalProperties": False}
_S: dict[str, object] = {"type": "string"}
_I: dict[str, object] = {"type": "integer"}
_N: dict[str, object] = {"type": "number"}

_JSON: list[tuple[str, str, str, bool, bool]] = [
    ("the same", _object({"a": _S}), _object({"a": _S}), True, True),
    ("a property is added to an open content model", _object({"a": _S}), _object({"a": _S, "b": _S}), False, True),
    ("a property without a type is added to an open content model", _object({"a": _S}), _object({"a": _S, "b": {}}), True, True),
    ("an optional property is added to a closed content model", _object({"a": _S}, **_CLOSED), _object({"a": _S, "b": _S}, **_CLOSED), True, False),
    ("a required property is added to a closed content model", _object({"a": _S}, **_CLOSED), _object({"a": _S, "b": _S}, required=["b"], **_CLOSED), False, False),
    ("a required property with a default is added to a closed content model", _object({"a": _S}, **_CLOSED), _object({"a": _S, "b": {"type": "string", "default": ""}}, required=["b"], **_CLOSED), True, False),
    ("a property is added that additional properties cover", _object({"a": _S}, additionalProperties=_S), _object({"a": _S, "b": _S}, additionalProperties=_S), True, True),
    ("a property is added that additional properties do not cover", _object({"a": _S}, additionalProperties=_S), _object({"a": _S, "b": _I}, additionalProperties=_S), False, False),
    ("a property is added that a pattern covers", _object(patternProperties={"^x": _S}, **_CLOSED), _object({"xa": _S}, patternProperties={"^x": _S}, **_CLOSED), True, True),
    ("a content model is opened", _object({"a": _S}, **_CLOSED), _object({"a": _S}), True, False),
    ("a content model is opened a little", _object({"a": _S}, **_CLOSED), _object({"a": _S}, additionalProperties=_S), True, False),
    ("a property becomes required", _object({"a": _S}), _object({"a": _S}, required=["a"]), False, True),
    ("a property becomes required, with a default behind a reference", _object({"a": {"$ref": "#/definitions/d"}}, definitions={"d": {"type": "string", "default": ""}}), _object({"a": {"$ref": "#/definitions/d"}}, definitions={"d": {"type": "string", "default": ""}}, required=["a"]), True, True),
    ("integer becomes number", json.dumps(_I), json.dumps(_N), True, False),
    ("string becomes integer", json.dumps(_S), json.dumps(_I), False, False),
    ("a type is added", '{"type":"string"}', '{"type":["string","null"]}', True, False),
    ("maxLength is increased", '{"type":"string","maxLength":3}', '{"type":"string","maxLength":5}', True, False),
    ("minLength is removed", '{"type":"string","minLength":3}', '{"type":"string"}', True, False),
    ("a pattern is added", '{"type":"string"}', '{"type":"string","pattern":"^a"}', False, True),
    ("a pattern changes", '{"type":"string","pattern":"^a"}', '{"type":"string","pattern":"^b"}', False, False),
    ("maximum is increased", '{"type":"number","maximum":3}', '{"type":"number","maximum":5}', True, False),
    ("minimum is increased", '{"type":"number","minimum":3}', '{"type":"number","minimum":5}', False, True),
    ("multipleOf is divided", '{"type":"integer","multipleOf":10}', '{"type":"integer","multipleOf":5}', True, False),
    ("a value is added to an enum", '{"enum":["a"]}', '{"enum":["a","b"]}', True, False),
    ("items get another type", '{"type":"array","items":{"type":"string"}}', '{"type":"array","items":{"type":"integer"}}', False, False),
    ("maxItems is added", '{"type":"array"}', '{"type":"array","maxItems":5}', False, True),
    ("items must be unique", '{"type":"array"}', '{"type":"array","uniqueItems":true}', False, True),
    ("an alternative is added to oneOf", '{"oneOf":[{"type":"string"}]}', '{"oneOf":[{"type":"string"},{"type":"integer"}]}', True, False),
    ("a type becomes an alternative", '{"type":"string"}', '{"anyOf":[{"type":"string"},{"type":"null"}]}', True, False),
    ("a part is added to allOf", '{"allOf":[{"type":"string"}]}', '{"allOf":[{"type":"string"},{"maxLength":5}]}', False, True),
    ("title and description change", _object({"a": _S}, title="t"), _object({"a": _S}, description="d"), True, True),
    ("a definition replaces what it stands for", _object({"a": _S}), _object({"a": {"$ref": "#/definitions/d"}}, definitions={"d": _S}), True, True),
    ("a nested property gets another type", _object({"a": {"type": "object", "properties": {"b": _S}}}), _object({"a": {"type": "object", "properties": {"b": _I}}}), False, False),
    ("a property is removed from a closed content model", _object({"a": _S, "b": _S}, **_CLOSED), _object({"a": _S}, **_CLOSED), False, True),
]  # fmt: skip


def _proto(body: str, package: str = "p") -> str:
    return f'syntax = "proto3"; package {package}; {body}'


def _proto2(body: str) -> str:
    return f'syntax = "proto2"; {body}'


_M = "message M { string a = 1; }"

_PROTOBUF: list[tuple[str, str, str, bool, bool]] = [
    ("the same", _proto(_M), _proto(_M), True, True),
    ("a field is added", _proto(_M), _proto("message M { string a = 1; int32 b = 2; }"), True, True),
    ("a field is renamed", _proto(_M), _proto("message M { string b = 1; }"), True, True),
    ("a field gets another number", _proto(_M), _proto("message M { string a = 2; }"), True, True),
    ("a message is added", _proto(_M), _proto(_M + " message N {}"), True, False),
    ("a nested message is removed", _proto("message M { message N {} }"), _proto("message M {}"), False, True),
    ("the package changes", _proto(_M), _proto(_M, package="q"), True, True),
    ("int32 becomes int64", _proto("message M { int32 a = 1; }"), _proto("message M { int64 a = 1; }"), True, True),
    ("int32 becomes bool", _proto("message M { int32 a = 1; }"), _proto("message M { bool a = 1; }"), True, True),
    ("int32 becomes sint32", _proto("message M { int32 a = 1; }"), _proto("message M { sint32 a = 1; }"), False, False),
    ("fixed32 becomes sfixed32", _proto("message M { fixed32 a = 1; }"), _proto("message M { sfixed32 a = 1; }"), True, True),
    ("fixed32 becomes fixed64", _proto("message M { fixed32 a = 1; }"), _proto("message M { fixed64 a = 1; }"), False, False),
    ("float becomes double", _proto("message M { float a = 1; }"), _proto("message M { double a = 1; }"), False, False),
    ("string becomes bytes", _proto(_M), _proto("message M { bytes a = 1; }"), True, True),
    ("string becomes int32", _proto(_M), _proto("message M { int32 a = 1; }"), False, False),
    ("a string becomes repeated", _proto(_M), _proto("message M { repeated string a = 1; }"), True, True),
    ("a number becomes repeated", _proto("message M { int32 a = 1; }"), _proto("message M { repeated int32 a = 1; }"), False, False),
    ("a scalar becomes a message", _proto("message M { string a = 1; } message N {}"), _proto("message M { N a = 1; } message N {}"), False, False),
    ("a message field gets another type", _proto("message M { N a = 1; } message N {} message O {}"), _proto("message M { O a = 1; } message N {} message O {}"), False, False),
    ("an enum becomes int32", _proto("message M { E a = 1; } enum E { Z = 0; }"), _proto("message M { int32 a = 1; }"), True, True),
    ("a value is added to an enum", _proto("message M { E a = 1; } enum E { Z = 0; }"), _proto("message M { E a = 1; } enum E { Z = 0; A = 1; }"), True, True),
    ("a required field is added", _proto2("message M {}"), _proto2("message M { required string a = 1; }"), False, False),
    ("an optional field is removed", _proto2("message M { optional string a = 1; }"), _proto2("message M {}"), True, True),
    ("one field is moved to a new oneof", _proto("message M { string a = 1; }"), _proto("message M { oneof o { string a = 1; string b = 2; } }"), True, True),
    ("two fields are moved to a oneof", _proto("message M { string a = 1; string b = 2; }"), _proto("message M { oneof o { string a = 1; string b = 2; } }"), False, True),
    ("a field is removed from a oneof", _proto("message M { oneof o { string a = 1; string b = 2; } }"), _proto("message M { oneof o { string a = 1; } }"), False, True),
    ("a field becomes optional", _proto(_M), _proto("message M { optional string a = 1; }"), True, True),
    ("the values of a map change", _proto("message M { map<string, string> a = 1; }"), _proto("message M { map<string, int32> a = 1; }"), False, False),
]  # fmt: skip

CASES = [
    Case(kind, *row)
    for kind, rows in (
        (SchemaType.AVRO, _AVRO),
        (SchemaType.JSON, _JSON),
        (SchemaType.PROTOBUF, _PROTOBUF),
    )
    for row in rows
]
