import json

import pytest

from millstream.registry.encoding import Codec, join, split
from millstream.registry.formats.text import Dependency
from millstream.registry.model import Content, Reference, SchemaType

RICH = json.dumps(
    {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "K"}}},
            {"name": "next", "type": ["null", "R"], "default": None},
            {"name": "sum", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "either", "type": [{"type": "record", "name": "X", "fields": [
                {"name": "x", "type": "int"}]}, {"type": "record", "name": "Y", "fields": [
                {"name": "y", "type": "int"}]}]},
        ],
    }
)  # fmt: skip
VALUE = {
    "id": 2**40,
    "at": 1_700_000_000_123,
    "price": "\u0001\u00ff",
    "note": "größe",
    "kind": "A",
    "tags": {"t": ["A", "B"]},
    "next": None,
    "sum": "ab",
    "either": {"y": 5},
}
AVRO = Codec(Content(SchemaType.AVRO, RICH))
JSON = Codec(Content(SchemaType.JSON, '{"type":"object","properties":{"a":{"type":"integer"}}}'))
PROTO = Codec(
    Content(
        SchemaType.PROTOBUF,
        'syntax = "proto3"; message M { string a_b = 1; N n = 2; message N { int64 x = 1; } }',
    )
)


def test_the_id_stands_in_front() -> None:
    assert join(258, b"x") == b"\0\0\0\1\2x"
    assert split(b"\0\0\0\1\2x") == (258, b"x")
    assert split(b"\0\0\0\1") is None
    assert split(b"plain text") is None
    assert split(b"") is None


def test_avro_and_back() -> None:
    encoded = AVRO.encode(json.dumps(VALUE).encode())
    assert json.loads(AVRO.decode(encoded)) == VALUE
    inner = {**VALUE, "next": VALUE}
    assert json.loads(AVRO.decode(AVRO.encode(json.dumps(inner).encode()))) == inner


def test_defaults_are_filled_in() -> None:
    value = {name: each for name, each in VALUE.items() if name not in ("note", "next")}
    decoded = json.loads(AVRO.decode(AVRO.encode(json.dumps(value).encode())))
    assert decoded == {**VALUE, "note": None}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"id": "x"}, "value.id: 'x' is not of type long"),
        ({"id": 2**70}, "value.id"),
        ({"kind": "C"}, "value.kind"),
        ({"sum": "abc"}, "value.sum"),
        ({"sum": "\u0101b"}, "characters from 0 to 255"),
        ({"note": 5}, "value.note: 5 is not of type string"),
        ({"tags": {"t": ["A", "Z"]}}, "value.tags.t"),
        ({"odd": 1}, "no field 'odd'"),
        ({"either": {"z": 1}}, "value.either: no branch"),
    ],
)
def test_values_of_another_type_are_named(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("[", r"\[")):
        AVRO.encode(json.dumps({**VALUE, **changed}).encode())


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ValueError, match="'id' is missing"):
        AVRO.encode(b"{}")


@pytest.mark.parametrize("codec", [AVRO, JSON, PROTO])
def test_what_is_not_json_is_refused(codec: Codec) -> None:
    for text in (b"{", b"", b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError):
            codec.encode(text)


@pytest.mark.parametrize("payload", [b"", b"\xff" * 20, b"\x02", b"\x02\x02\xfe\xff\xff\xff\x0f"])
def test_data_that_is_not_of_the_schema_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        AVRO.decode(payload)


def test_json_is_checked_and_sent_compactly() -> None:
    assert JSON.encode(b'{ "a": 1 }') == b'{"a":1}'
    assert JSON.decode(b'{"a":1}') == b'{"a":1}'
    with pytest.raises(ValueError, match=r"\$.a: 'x' is not of type 'integer'"):
        JSON.encode(b'{"a":"x"}')


def test_protobuf_and_back() -> None:
    encoded = PROTO.encode(b'{"a_b": "x", "n": {"x": "5"}}')
    assert encoded[0] == 0
    assert json.loads(PROTO.decode(encoded)) == {"a_b": "x", "n": {"x": "5"}}
    # The second level: message 0, and in it message 0.
    assert json.loads(PROTO.decode(b"\x04\x00\x00\x08\x07")) == {"x": "7"}
    with pytest.raises(ValueError, match="not a M"):
        PROTO.encode(b'{"odd": 1}')


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x01", b"\x02\x04", b"\x00\xff", b"\x02\x80"])
def test_data_that_is_not_of_protobuf_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        PROTO.decode(payload)


def test_schemas_with_references() -> None:
    content = Content(
        SchemaType.AVRO, '{"type":"array","items":"Low"}', (Reference("Low", "low", 1),)
    )
    low = Dependency("Low", '{"type":"enum","name":"Low","symbols":["A"]}')
    codec = Codec(content, [low])
    assert codec.decode(codec.encode(b'["A"]')) == b'["A"]'
