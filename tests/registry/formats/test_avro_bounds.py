import io
import json
import time
from typing import Any

import fastavro
import pytest

from millstream.registry.formats.avro import parse_avro
from millstream.registry.formats.avro_bounds import DEPTH_MAX, AvroBounds

LIST = {
    "type": "record",
    "name": "L",
    "fields": [{"name": "next", "type": ["null", "L"]}, {"name": "n", "type": "long"}],
}
TREE = {
    "type": "record",
    "name": "T",
    "fields": [
        {"name": "children", "type": {"type": "array", "items": "T"}},
        {"name": "by_name", "type": {"type": "map", "values": "T"}},
        {"name": "sum", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        {"name": "rest", "type": ["null", "boolean", "int", "float", "double", "bytes", "string"]},
    ],
}
MANY_NULLS = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "R",
        "fields": [{"name": "b", "type": "boolean"}]
        + [{"name": f"n{number}", "type": "null"} for number in range(500)],
    },
}


def bounds(schema: object) -> AvroBounds:
    return AvroBounds(parse_avro(json.dumps(schema)))


def encoded(schema: object, value: Any) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, parse_avro(json.dumps(schema)).tree, value)
    return output.getvalue()


def number(value: int) -> bytes:
    return encoded("long", value)


def leaf(rest: object) -> dict[str, object]:
    return {"children": [], "by_name": {}, "sum": b"abc", "kind": "A", "rest": rest}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": "null"}, [None] * 1000),
        (LIST, {"next": {"next": None, "n": 1 << 62}, "n": -1}),
        (TREE, {**leaf(None), "children": [leaf(True), leaf(5)], "by_name": {"x": leaf("text")}}),
        (TREE, {**leaf(1.5), "by_name": {"a": leaf(b"bytes"), "b": leaf(None)}}),
        (MANY_NULLS, [{"b": True, **{f"n{number}": None for number in range(500)}}] * 10),
    ],
)
def test_usual_data_of_such_schemas_passes(schema: object, value: Any) -> None:
    bounds(schema).check(encoded(schema, value))


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        ({"type": "array", "items": "null"}, number(10**9) + b"\0", "1,000,000,000 values"),
        ({"type": "array", "items": "null"}, number(-(10**9)) + b"\0\0", "1,000,000,000 values"),
        ({"type": "array", "items": "null"}, number(4_000_000) * 5, "more than .* characters"),
        (
            {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
            number(1 << 62) + b"\0",
            "values",
        ),
        (MANY_NULLS, number(100_000) + b"\1" * 100_000 + b"\0", "more than .* characters"),
        (LIST, b"\2" * 1_000_000, "nested deeper"),
        (TREE, b"\2" * 1_000_000, "nested deeper"),
        (LIST, b"\2\2", "ends within"),
        (LIST, b"\x0a", "no branch 5"),
        (LIST, b"\xff" * 20, "more than 64 bits"),
        (TREE, b"\0\0ab", "ends within"),
    ],
)
def test_hostile_data_is_refused_at_once(schema: object, payload: bytes, reason: str) -> None:
    checked = bounds(schema)
    began = time.process_time()
    with pytest.raises(ValueError, match=reason):
        checked.check(payload)
    assert time.process_time() - began < 20


def test_data_may_be_nested_as_deep_as_the_limit() -> None:
    deep: dict[str, Any] = {"next": None, "n": 1}
    for _ in range(DEPTH_MAX - 1):
        deep = {"next": deep, "n": 1}
    bounds(LIST).check(encoded(LIST, deep))
    with pytest.raises(ValueError, match="nested deeper"):
        bounds(LIST).check(encoded(LIST, {"next": {"next": deep, "n": 1}, "n": 1}))


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        {"type": "array", "items": ["null", "string"]},
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Usual",
                "fields": [
                    {"name": f"a_rather_long_name_{number}", "type": ["null", "long"]}
                    for number in range(50)
                ],
            },
        },
    ],
)
def test_data_of_usual_schemas_is_not_looked_at(schema: object) -> None:
    bounds(schema).check(b"anything")
