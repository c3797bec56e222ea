"""Schemas that were made to take forever, or a lot of memory.

Covers registry/formats, registry/compatibility.
"""

import json
import time

import pytest

from millstream.registry.formats.table import compare, parse
from millstream.registry.formats.text import DEPTH_MAX, InvalidSchema, is_too_deep, load_json
from millstream.registry.model import SchemaType

T = SchemaType
# Processor time, which other processes do not use up; each takes two seconds at most.
SECONDS_MAX = 30.0
MANY = 20_000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (T.AVRO, [{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(MANY)]),
        (T.AVRO, {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(3 * MANY)]}),
        (T.JSON, {"required": [f"f{n}" for n in range(3 * MANY)]}),
        (T.JSON, {"enum": [f"f{n}" for n in range(3 * MANY)]}),
        (T.JSON, {"properties": {f"f{n}": {"type": "string"} for n in range(MANY)}}),
        (T.JSON, {"anyOf": [{"type": "string", "maxLength": n} for n in range(1_900)]}),
        (T.PROTOBUF, "".join(f"message M{n}{{string a=1;}}" for n in range(MANY))),
        (T.PROTOBUF, "enum E{" + "".join(f"V{n}={n};" for n in range(2 * MANY)) + "}"),
        (T.PROTOBUF, "option (a)={" + "a:1 " * 100_000 + "};"),
    ],
    ids=[
        "union",
        "symbols",
        "required",
        "enum",
        "properties",
        "anyOf",
        "messages",
        "values",
        "option",
    ],
)
def test_large_schemas_are_read_and_compared_in_reasonable_time(
    kind: SchemaType, text: object
) -> None:
    written = f'syntax = "proto3"; {text}' if isinstance(text, str) else json.dumps(text)
    assert len(written) < 1 << 20
    began = time.process_time()
    schema = parse(kind, written)
    compare(schema, schema)
    assert time.process_time() - began < SECONDS_MAX


def test_depth_is_counted_without_recursion() -> None:
    deep: object = 1
    for _ in range(DEPTH_MAX - 1):
        deep = [deep]
    assert not is_too_deep(deep)
    assert is_too_deep([deep])
    assert load_json('{"a":[1,2.5,null]}') == {"a": [1, 2.5, None]}
    with pytest.raises(InvalidSchema, match="line 2, column 1"):
        load_json("{\n")


def test_many_names_against_many_patterns_are_not_compared_for_ever() -> None:
    patterns = {f"^q{number}$": {"type": "string"} for number in range(4_000)}

    def schema(letter: str) -> str:
        names = {f"{letter}{number}": {"type": "string"} for number in range(4_000)}
        return json.dumps(
            {"properties": names, "patternProperties": patterns, "additionalProperties": False}
        )

    began = time.process_time()
    assert compare(parse(T.JSON, schema("r")), parse(T.JSON, schema("p"))) != []
    assert time.process_time() - began < SECONDS_MAX


@pytest.mark.parametrize("text", ["1e999", "-1e999", "9" * 400])
def test_numbers_that_no_double_holds_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema, match="not JSON"):
        load_json(f'{{"maximum": {text}}}')
