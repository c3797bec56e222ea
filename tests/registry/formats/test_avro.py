import pytest

from millstream.registry.formats.avro import parse_avro
from millstream.registry.formats.text import Dependency, InvalidSchema


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"type": "string"}', '"string"'),
        (' [ "null" , "int" ] ', '["null","int"]'),
        (
            '{"fields":[{"type":"int","default":1,"name":"a"}],"name":"x.y.R","doc":"d",'
            '"type":"record","own":1}',
            '{"type":"record","name":"R","namespace":"x.y","doc":"d",'
            '"fields":[{"name":"a","type":"int","default":1}],"own":1}',
        ),
        (
            '{"type":"record","name":"R","namespace":"n","fields":'
            '[{"name":"next","type":["null","n.R"]}]}',
            '{"type":"record","name":"R","namespace":"n","fields":'
            '[{"name":"next","type":["null","R"]}]}',
        ),
        (
            '{"symbols":["A"],"default":"A","name":"E","type":"enum","aliases":["F"]}',
            '{"type":"enum","name":"E","symbols":["A"],"default":"A","aliases":["F"]}',
        ),
        (
            '{"logicalType":"decimal","precision":4,"type":"bytes"}',
            '{"type":"bytes","logicalType":"decimal","precision":4}',
        ),
        ('{"size":4,"name":"F","type":"fixed"}', '{"type":"fixed","name":"F","size":4}'),
        (
            '{"values":{"type":"array","items":{"type":"int"}},"type":"map"}',
            '{"type":"map","values":{"type":"array","items":"int"}}',
        ),
    ],
)
def test_the_canonical_text_is_that_of_avros_java_library(text: str, canonical: str) -> None:
    assert parse_avro(text).text == canonical
    assert parse_avro(canonical).text == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("string", "line 1, column 1"),
        ("5", "not an Avro schema"),
        ("null", "not an Avro schema"),
        ("{}", "'type' is missing"),
        ('"unknown"', "is a reference missing"),
        ('{"type":"record"}', "name"),
        ('{"type":"array"}', "'items' is missing"),
        ('{"type":"record","name":"a b","fields":[]}', "is not a name"),
        ('{"type":"record","name":"R","fields":[5]}', "dict"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}', "x"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},'
            '{"name":"a","type":"int"}]}',
            "twice",
        ),
        ('{"type":"record","name":"R"}', "no list of fields"),
        ('{"type":"record","name":"R","fields":[],"aliases":[true]}', "list of names"),
        ('{"type":"record","name":"R","fields":[],"aliases":null}', "list of names"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "unique"),
        ('{"type":"enum","name":"E","symbols":"AB"}', "not a list"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "Default"),
        ('{"type":"fixed","name":"F","size":"x"}', "number of bytes"),
        ('["int","int"]', "'int' is twice"),
        ('["int",["null"]]', "union"),
        ("[" * 100_000, "deeper"),
        ('{"type":"array","items":' * 250 + '"int"' + "}" * 250, "deeper"),
        ('{"type":"int","n":' + "9" * 5_000 + "}", "not JSON"),
        ('{"type":"int","n":NaN}', "NaN"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse_avro(text)


def test_a_schema_may_be_nested_as_deep_as_people_write() -> None:
    assert parse_avro('{"type":"array","items":' * 150 + '"int"' + "}" * 150)


def test_names_of_dependencies_are_known() -> None:
    low = Dependency("n.Low", '{"type":"enum","name":"Low","namespace":"n","symbols":["A"]}')
    middle = Dependency(
        "n.Middle",
        '{"type":"record","name":"Middle","namespace":"n","fields":[{"name":"l","type":"Low"}]}',
    )
    schema = parse_avro('{"type":"array","items":"n.Middle"}', [low, middle])
    assert schema.text == '{"type":"array","items":"n.Middle"}'
    assert {"n.Low", "n.Middle"} <= set(schema.names)
