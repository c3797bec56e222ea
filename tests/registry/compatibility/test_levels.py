"""Covers registry/compatibility, registry/formats/table.py."""

import pytest

from millstream.registry.compatibility.levels import Earlier, incompatibilities
from millstream.registry.formats.table import compare, parse
from millstream.registry.model import Compatibility, SchemaType
from tests.registry.compatibility_cases import CASES, Case

L = Compatibility
AVRO = SchemaType.AVRO


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}: {case.name}")
def test_what_may_follow_what(case: Case) -> None:
    old, new = parse(case.type, case.old), parse(case.type, case.new)
    assert (compare(new, old) == []) == case.reads_old, compare(new, old)
    assert (compare(old, new) == []) == case.is_read_by_old, compare(old, new)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}: {case.name}")
def test_each_level_asks_for_its_directions(case: Case) -> None:
    old, new = Earlier(1, parse(case.type, case.old)), parse(case.type, case.new)
    allowed = {level for level in L if not incompatibilities(level, new, [old])}
    expected = {L.NONE}
    if case.reads_old:
        expected |= {L.BACKWARD, L.BACKWARD_TRANSITIVE}
    if case.is_read_by_old:
        expected |= {L.FORWARD, L.FORWARD_TRANSITIVE}
    if case.reads_old and case.is_read_by_old:
        expected |= {L.FULL, L.FULL_TRANSITIVE}
    assert allowed == expected


def test_there_are_at_least_twenty_cases_of_every_format() -> None:
    assert len(CASES) >= 60
    for kind in SchemaType:
        assert sum(case.type is kind for case in CASES) >= 20
        assert len({case.name for case in CASES if case.type is kind}) == sum(
            case.type is kind for case in CASES
        )


def test_a_transitive_level_compares_all_versions_and_the_others_the_last() -> None:
    # Int data of version 1 is not readable as string, that of version 2 is.
    earlier = [Earlier(1, parse(AVRO, '"int"')), Earlier(2, parse(AVRO, '"bytes"'))]
    new = parse(AVRO, '"string"')
    assert incompatibilities(L.BACKWARD, new, earlier) == []
    [difference, version, text, level] = incompatibilities(L.BACKWARD_TRANSITIVE, new, earlier)
    assert "TYPE_MISMATCH" in difference
    assert (version, text) == ("{oldSchemaVersion: 1}", "{oldSchema: '\"int\"'}")
    assert level == "{compatibility: 'BACKWARD_TRANSITIVE'}"


def test_the_first_version_of_a_subject_is_compatible_with_nothing_to_compare() -> None:
    assert incompatibilities(L.FULL_TRANSITIVE, parse(AVRO, '"int"'), []) == []


def test_another_type_of_schema_cannot_follow() -> None:
    new, old = parse(SchemaType.JSON, '{"type":"string"}'), parse(AVRO, '"string"')
    assert [one.kind for one in compare(new, old)] == ["SCHEMA_TYPE_CHANGED"]


def test_a_reference_to_what_is_not_a_schema_is_a_difference() -> None:
    odd = parse(SchemaType.JSON, '{"$ref":"#/odd","odd":{"type":1.5}}')
    assert [one.kind for one in compare(odd, odd)] == ["NOT_A_SCHEMA"]
    # A keyword of another draft.
    odd = parse(SchemaType.JSON, '{"prefixItems":1.5}')
    assert [one.kind for one in compare(odd, odd)] == ["NOT_A_SCHEMA"]


def test_schemas_made_to_take_forever_are_given_up() -> None:
    branches = ",".join(
        f'{{"type":"object","properties":{{"p{n}":{{"type":"string"}}}},"required":["p{n}"]}}'
        for n in range(400)
    )
    old = parse(SchemaType.JSON, f'{{"oneOf":[{branches}]}}')
    new = parse(SchemaType.JSON, f'{{"oneOf":[{branches.replace("string", "integer")}]}}')
    assert [one.kind for one in compare(new, old)] == ["TOO_LARGE"]
