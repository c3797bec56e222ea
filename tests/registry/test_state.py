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
    ConfigSet,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
)
from millstream.registry.state import RegistryState

INT, LONG = Content(SchemaType.AVRO, '"int"'), Content(SchemaType.AVRO, '"long"')


def state_of(*registered: Registered) -> RegistryState:
    state = RegistryState()
    for one in registered:
        state.apply(SchemaWritten(one))
    return state


def numbers(found: list[Registered]) -> list[int]:
    return [one.version for one in found]


def test_a_content_has_one_id_in_all_subjects() -> None:
    state = state_of(Registered("a", 1, 1, INT), Registered("b", 1, 1, INT))
    assert state.id_of(INT) == 1
    assert [one.subject for one in state.uses_of(1)] == ["a", "b"]


def test_an_id_is_known_until_its_last_version_is_removed() -> None:
    state = state_of(Registered("a", 1, 1, INT), Registered("b", 1, 1, INT))
    state.apply(SchemaRemoved("a", 1))
    assert state.content(1) == INT
    state.apply(SchemaRemoved("b", 1))
    assert state.content(1) is None
    assert state.id_of(INT) is None
    assert state.subjects() == []
    assert state.last_id == 1


def test_deleting_a_subject_deletes_the_versions_there_are_and_no_later_one() -> None:
    state = state_of(Registered("a", 1, 1, INT), Registered("a", 2, 2, LONG))
    state.apply(SubjectDeleted("a", 2))
    assert numbers(state.live_versions("a")) == []
    state.apply(SchemaWritten(Registered("a", 3, 1, INT)))
    assert numbers(state.live_versions("a")) == [3]
    assert numbers(state.versions("a")) == [1, 2, 3]
    state.apply(SubjectCleared("a"))
    assert numbers(state.versions("a")) == [3]


def test_removing_what_is_not_there_changes_nothing() -> None:
    state = state_of(Registered("a", 1, 1, INT))
    state.apply(SchemaRemoved("a", 9))
    state.apply(SchemaRemoved("b", 1))
    state.apply(SubjectDeleted("b", 1))
    assert numbers(state.live_versions("a")) == [1]


def test_referrers_are_those_that_are_not_deleted() -> None:
    content = Content(SchemaType.AVRO, '"R"', (Reference("R", "a", 1),))
    referring = Registered("b", 1, 2, content)
    state = state_of(Registered("a", 1, 1, INT), referring)
    assert state.referrers("a", 1) == [referring]
    state.apply(SubjectDeleted("b", 1))
    assert state.referrers("a", 1) == []


def test_a_reference_to_the_latest_version_skips_deleted_ones() -> None:
    state = state_of(Registered("a", 1, 1, INT), Registered("a", 2, 2, LONG, is_deleted=True))
    found = state.resolve(Reference("n", "a", -1))
    assert found is not None
    assert found.version == 1
    assert state.resolve(Reference("n", "a", 2)) is not None
    assert state.resolve(Reference("n", "b", -1)) is None


def test_a_subjects_config_wins_over_that_of_all() -> None:
    state = RegistryState()
    assert state.compatibility("a") is Compatibility.BACKWARD
    state.apply(ConfigSet(None, Config(Compatibility.FULL, True)))
    state.apply(ConfigSet("a", Config(Compatibility.NONE)))
    assert state.compatibility("a") is Compatibility.NONE
    assert state.compatibility("b") is Compatibility.FULL
    assert state.normalizes("a")
    state.apply(ConfigSet("a", None))
    assert state.compatibility("a") is Compatibility.FULL


def test_a_subjects_mode_wins_unless_all_are_overridden() -> None:
    state = RegistryState()
    state.apply(ModeSet("a", Mode.READWRITE))
    state.apply(ModeSet(None, Mode.READONLY))
    assert (state.mode("a"), state.mode("b")) == (Mode.READWRITE, Mode.READONLY)
    state.apply(ModeSet(None, Mode.READONLY_OVERRIDE))
    assert state.mode("a") is Mode.READONLY_OVERRIDE
