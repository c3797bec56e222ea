import pytest

from millstream.registry import decisions
from millstream.registry.decisions import Registration
from millstream.registry.errors import RegistryError
from millstream.registry.model import (
    Compatibility,
    Config,
    Content,
    Mode,
    Reference,
    Registered,
    SchemaType,
)
from millstream.registry.records import (
    Change,
    ConfigSet,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectDeleted,
)
from millstream.registry.state import RegistryState

INT, LONG = Content(SchemaType.AVRO, '"int"'), Content(SchemaType.AVRO, '"long"')


def state_of(*changes: Change) -> RegistryState:
    state = RegistryState()
    for change in changes:
        state.apply(change)
    return state


def written(subject: str, version: int, schema_id: int, content: Content) -> SchemaWritten:
    return SchemaWritten(Registered(subject, version, schema_id, content))


def code_of(raised: "pytest.ExceptionInfo[RegistryError]") -> int:
    return raised.value.code


ONE = written("a", 1, 1, INT)


def test_a_new_content_gets_the_next_id_and_version() -> None:
    state = state_of(ONE, written("b", 1, 5, LONG))
    new = Registration(Content(SchemaType.AVRO, '"string"'))
    assert decisions.register(state, "a", new) == Registered("a", 2, 6, new.content)


def test_a_known_content_keeps_its_id_in_another_subject() -> None:
    assert decisions.register(state_of(ONE), "b", Registration(INT)).id == 1


def test_versions_that_were_deleted_are_not_used_again() -> None:
    state = state_of(ONE, SubjectDeleted("a", 1))
    assert decisions.register(state, "a", Registration(LONG)).version == 2


def test_an_id_of_a_content_that_was_removed_is_not_used_again() -> None:
    state = state_of(ONE, SubjectDeleted("a", 1), SchemaRemoved("a", 1))
    assert decisions.register(state, "a", Registration(INT)) == Registered("a", 1, 2, INT)


def test_nothing_is_registered_while_it_may_only_be_read() -> None:
    for mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        with pytest.raises(RegistryError, match="read-only") as raised:
            decisions.register(state_of(ModeSet(None, mode)), "a", Registration(INT))
        assert code_of(raised) == 42205


def test_ids_are_given_by_the_client_only_in_mode_import() -> None:
    with pytest.raises(RegistryError, match="not in import mode") as raised:
        decisions.register(state_of(), "a", Registration(INT, id=9))
    assert code_of(raised) == 42205
    state = state_of(ModeSet(None, Mode.IMPORT))
    imported = decisions.register(state, "a", Registration(INT, id=9, version=4))
    assert (imported.id, imported.version) == (9, 4)
    with pytest.raises(RegistryError, match="must have an id"):
        decisions.register(state, "a", Registration(INT))
    state.apply(SchemaWritten(imported))
    with pytest.raises(RegistryError, match="Overwrite"):
        decisions.register(state, "b", Registration(LONG, id=9))


def test_the_mode_import_wants_an_empty_registry_or_force() -> None:
    state = state_of(ONE)
    with pytest.raises(RegistryError, match="force=true"):
        decisions.set_mode(state, None, Mode.IMPORT, is_forced=False)
    assert decisions.set_mode(state, "b", Mode.IMPORT, is_forced=False)
    assert decisions.set_mode(state, None, Mode.IMPORT, is_forced=True) == [
        ModeSet(None, Mode.IMPORT)
    ]


@pytest.mark.parametrize(
    ("text", "version"), [("latest", None), ("-1", None), ("1", 1), ("2147483647", 2**31 - 1)]
)
def test_versions_are_numbers_or_the_latest(text: str, version: int | None) -> None:
    assert decisions.parse_version(text) == version


@pytest.mark.parametrize("text", ["0", "-2", "x", "", "2147483648", "9" * 5000, "１", "1.5"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        decisions.parse_version(text)
    assert code_of(raised) == 42202


def test_getting_a_version() -> None:
    state = state_of(ONE, written("a", 2, 2, LONG))
    assert decisions.get_version(state, "a", None).version == 2
    assert decisions.get_version(state, "a", 1).version == 1
    with pytest.raises(RegistryError) as raised:
        decisions.get_version(state, "a", 3)
    assert code_of(raised) == 40402
    with pytest.raises(RegistryError) as raised:
        decisions.get_version(state, "z", 1)
    assert code_of(raised) == 40401


def test_a_version_is_deleted_softly_and_then_for_good() -> None:
    state = state_of(ONE, written("a", 2, 2, LONG))
    with pytest.raises(RegistryError) as raised:
        decisions.remove_version(state, "a", 1)
    assert code_of(raised) == 40407
    [change] = decisions.delete_version(state, "a", 1)
    assert decisions.version_of(change) == 1
    state.apply(change)
    with pytest.raises(RegistryError) as raised:
        decisions.delete_version(state, "a", 1)
    assert code_of(raised) == 40406
    assert decisions.remove_version(state, "a", 1) == [SchemaRemoved("a", 1)]


def test_a_subject_is_deleted_softly_and_then_for_good_with_its_settings() -> None:
    state = state_of(ONE, ConfigSet("a", Config(Compatibility.FULL)), ModeSet("a", Mode.READWRITE))
    with pytest.raises(RegistryError) as raised:
        decisions.remove_subject(state, "a")
    assert code_of(raised) == 40405
    changes = decisions.delete_subject(state, "a")
    assert changes == [SubjectDeleted("a", 1), ConfigSet("a", None), ModeSet("a", None)]
    for change in changes:
        state.apply(change)
    with pytest.raises(RegistryError) as raised:
        decisions.delete_subject(state, "a")
    assert code_of(raised) == 40404
    assert decisions.remove_subject(state, "a") == [SchemaRemoved("a", 1)]
    for delete in (decisions.delete_subject, decisions.remove_subject):
        with pytest.raises(RegistryError) as raised:
            delete(state, "z")
        assert code_of(raised) == 40401


def test_what_others_refer_to_stays() -> None:
    content = Content(SchemaType.AVRO, '"R"', (Reference("R", "a", 1),))
    state = state_of(ONE, written("b", 1, 2, content))
    for delete in (
        lambda: decisions.delete_subject(state, "a"),
        lambda: decisions.delete_version(state, "a", 1),
    ):
        with pytest.raises(RegistryError) as raised:
            delete()
        assert code_of(raised) == 42206


def test_dependencies_stand_behind_those_that_they_need() -> None:
    low = Content(SchemaType.AVRO, "low")
    middle = Content(SchemaType.AVRO, "middle", (Reference("L", "low", 1),))
    state = state_of(written("low", 1, 1, low), written("middle", 1, 2, middle))
    references = (Reference("M", "middle", -1), Reference("L", "low", 1))
    top = decisions.pin_references(state, Content(SchemaType.AVRO, "top", references))
    assert top.references[0] == Reference("M", "middle", 1)
    assert [one.text for one in decisions.dependencies_of(state, top)] == ["low", "middle"]


def test_a_reference_that_leads_nowhere_is_named() -> None:
    content = Content(SchemaType.AVRO, '"R"', (Reference("R", "gone", 3),))
    for read in (decisions.pin_references, decisions.dependencies_of):
        with pytest.raises(RegistryError, match="version 3 of subject 'gone'") as raised:
            read(state_of(), content)
        assert code_of(raised) == 42201


def test_an_empty_schema_is_refused() -> None:
    with pytest.raises(RegistryError, match="empty") as raised:
        decisions.read_schema(Content(SchemaType.PROTOBUF, " \n"), [])
    assert code_of(raised) == 42201


def test_differences_follow_the_level() -> None:
    state = state_of(ONE)
    earlier = decisions.earlier_versions(state, "a")
    new = decisions.read_schema(Content(SchemaType.AVRO, '"string"'), [])
    assert decisions.differences(Compatibility.NONE, new, earlier) == []
    assert decisions.differences(Compatibility.BACKWARD, new, earlier)


def test_a_config_changes_only_what_it_names() -> None:
    state = state_of(ConfigSet("a", Config(Compatibility.FULL)))
    changes = decisions.set_config(state, "a", Config(None, True))
    assert changes == [ConfigSet("a", Config(Compatibility.FULL, True))]


def test_configs_and_modes_that_are_not_there_cannot_be_deleted() -> None:
    with pytest.raises(RegistryError) as raised:
        decisions.delete_config(state_of(), "a")
    assert code_of(raised) == 40408
    with pytest.raises(RegistryError) as raised:
        decisions.delete_mode(state_of(), "a")
    assert code_of(raised) == 40409
    assert decisions.delete_config(state_of(), None) == [ConfigSet(None, None)]
