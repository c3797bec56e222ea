import pytest

from millstream.registry.formats.json_schema import normalized_json_schema, parse_json_schema
from millstream.registry.formats.text import Dependency, InvalidSchema

DRAFT_2020 = '"$schema":"https://json-schema.org/draft/2020-12/schema"'


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "{}",
        '{"type":"string"}',
        f'{{{DRAFT_2020},"$defs":{{"a":{{"$ref":"#/$defs/a"}}}}}}',
        '{"$ref":"http://json-schema.org/draft-07/schema#"}',
        '{"properties":{"$ref":{"type":"string"}}}',
        '{"default":{"$ref":"nowhere"}}',
        '{"$schema":"http://nowhere/","type":"string"}',
    ],
)
def test_valid_schemas_keep_their_text(text: str) -> None:
    assert parse_json_schema(text).text == text


def test_white_space_goes_and_the_order_stays() -> None:
    schema = parse_json_schema('{ "type" : "object",\n "additionalProperties": false }')
    assert schema.text == '{"type":"object","additionalProperties":false}'
    assert normalized_json_schema(schema) == '{"additionalProperties":false,"type":"object"}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5", "an object or a boolean"),
        ("{", "not JSON"),
        ('{"type":"foo"}', "at /type"),
        ('{"properties":{"a":{"minLength":-1}}}', "at /properties/a/minLength"),
        ('{"$ref":"other.json"}', "leads nowhere"),
        ('{"$ref":"#/definitions/gone"}', "leads nowhere"),
        ('{"$ref":"http://[bad"}', "leads nowhere"),
        ('{"$id":"http://[bad"}', "not a JSON Schema"),
        ('{"$schema":"http://[bad"}', "not a"),
        ('{"$defs":null,"$ref":"#/$defs/a"}', "leads nowhere"),
        ('{"$id":5}', "strings"),
        (f'{{"enum":[{",".join(["1", "null"] * 2_000)}]}}', "not all texts"),
        ('{"not":' * 300 + "{}" + "}" * 300, "deeper"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse_json_schema(text)


def test_references_are_found_by_name_and_by_id() -> None:
    named = Dependency("other.json", '{"type":"string"}')
    assert parse_json_schema('{"$ref":"other.json"}', [named])
    with_id = Dependency("other", '{"$id":"http://x/other.json","type":"string"}')
    assert parse_json_schema('{"$ref":"http://x/other.json"}', [with_id])
    relative = Dependency("http://x/z.json", "{}")
    assert parse_json_schema('{"$id":"http://x/y.json","$ref":"z.json"}', [relative])
