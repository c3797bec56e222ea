"""What a request changes: the state in, changes for the log and an answer out.

Plain functions. The caller holds the right to write and has read the log to its end;
nothing is changed until the changes come back from the log. All raise RegistryError.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.registry import errors
from millstream.registry.compatibility.levels import Earlier, incompatibilities
from millstream.registry.formats.table import ParsedSchema, normalized, parse
from millstream.registry.formats.text import Dependency, InvalidSchema
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

_REFERENCES_MAX: Final = 1_000
_VERSION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Registration:
    """A schema that a client wants to register. `id` and `version` only in mode IMPORT."""

    content: Content
    id: int | None = None
    version: int | None = None


# -- schemas ---------------------------------------------------------------------------


def pin_references(state: RegistryState, content: Content) -> Content:
    """References to the latest version as references to the one it is now."""
    pinned = []
    for one in content.references:
        found = state.resolve(one)
        if found is None:
            raise _missing(one)
        pinned.append(replace(one, version=found.version))
    return replace(content, references=tuple(pinned))


def dependencies_of(state: RegistryState, content: Content) -> list[Dependency]:
    """All schemas that a schema needs, each behind those that it needs itself."""
    found: dict[str, Dependency] = {}

    def add(references: Sequence[Reference], path: tuple[str, ...]) -> None:
        for one in references:
            if one.name in found:
                continue
            if one.name in path or len(found) >= _REFERENCES_MAX:
                raise errors.invalid_schema(f"the references of {one.name!r} never end")
            target = state.resolve(one)
            if target is None:
                raise _missing(one)
            add(target.content.references, (*path, one.name))
            found[one.name] = Dependency(one.name, target.content.text)

    add(content.references, ())
    return list(found.values())


def _missing(one: Reference) -> errors.RegistryError:
    return errors.invalid_schema(
        f"the reference {one.name!r} leads to version {one.version} of subject '{one.subject}', "
        "which does not exist. Register it first"
    )


def read_schema(content: Content, dependencies: Sequence[Dependency]) -> ParsedSchema:
    if not content.text.strip():
        raise errors.invalid_schema("the schema is empty")
    try:
        return parse(content.type, content.text, dependencies)
    except InvalidSchema as wrong:
        raise errors.invalid_schema(f"{wrong} (schema type {content.type})") from None


def canonical(content: Content, schema: ParsedSchema, *, normalize: bool) -> Content:
    return replace(content, text=normalized(schema) if normalize else schema.text)


def find_version(versions: Sequence[Registered], content: Content) -> Registered | None:
    """The newest of these versions that has this content."""
    return next((one for one in reversed(versions) if _is_same(one.content, content)), None)


def _is_same(held: Content, content: Content) -> bool:
    """Other registries write the attributes of an Avro schema in another order."""
    if held == content:
        return True
    if content.type is not SchemaType.AVRO or len(held.text) != len(content.text):
        return False
    if replace(held, text=content.text) != content:
        return False
    try:
        return bool(json.loads(held.text) == json.loads(content.text))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Source:
    """A version with all that is needed to read it, so that a thread can do that."""

    version: int
    content: Content
    dependencies: list[Dependency]


def earlier_versions(state: RegistryState, subject: str) -> list[Source]:
    """Those that a new version may be compared with, in order."""
    return [source_of(state, one) for one in state.live_versions(subject)]


def source_of(state: RegistryState, one: Registered) -> Source:
    return Source(one.version, one.content, dependencies_of(state, one.content))


def differences(level: Compatibility, new: ParsedSchema, earlier: Sequence[Source]) -> list[str]:
    """Why `new` may not follow these versions; nothing if it may. Takes a while for large schemas:
    call it in a thread."""
    if level is Compatibility.NONE:
        return []
    compared = earlier if level.is_transitive else earlier[-1:]
    read = [Earlier(one.version, read_schema(one.content, one.dependencies)) for one in compared]
    return incompatibilities(level, new, read)


def register(state: RegistryState, subject: str, wanted: Registration) -> Registered:
    """The new version. It is compatible, and no version that is not deleted has its content."""
    mode = state.mode(subject)
    check_writable(state, subject)
    if mode is Mode.IMPORT:
        return _import(state, subject, wanted)
    if wanted.id is not None:
        raise errors.not_permitted(f"Subject {subject} is not in import mode")
    version = _next_version(state, subject)
    if wanted.version is not None and wanted.version != version:
        raise errors.not_permitted(
            f"The next version of subject {subject} is {version}, not {wanted.version}"
        )
    schema_id = state.id_of(wanted.content)
    if schema_id is None:
        schema_id = state.last_id + 1
    return Registered(subject, version, schema_id, wanted.content)


def _import(state: RegistryState, subject: str, wanted: Registration) -> Registered:
    if wanted.id is None:
        raise errors.not_permitted(
            f"Subject {subject} is in import mode, so the request must have an id"
        )
    held = state.content(wanted.id)
    if held is not None and held != wanted.content:
        raise errors.not_permitted(f"Overwrite new schema with id {wanted.id} is not permitted.")
    version = wanted.version or _next_version(state, subject)
    return Registered(subject, version, wanted.id, wanted.content)


def _next_version(state: RegistryState, subject: str) -> int:
    """Numbers of soft-deleted versions are not used again."""
    versions = state.versions(subject)
    return versions[-1].version + 1 if versions else 1


def check_writable(state: RegistryState, subject: str | None) -> None:
    mode = state.mode(subject)
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        what = "The registry" if subject is None else f"Subject {subject}"
        raise errors.not_permitted(f"{what} is in read-only mode")


# -- versions of a subject -------------------------------------------------------------


def parse_version(text: str) -> int | None:
    """None for the latest."""
    if text in ("latest", "-1"):
        return None
    if not text.isdecimal() or not text.isascii() or not 1 <= int(text[:12]) <= _VERSION_MAX:
        raise errors.invalid_version(text)
    return int(text)


def get_version(
    state: RegistryState, subject: str, version: int | None, *, with_deleted: bool = False
) -> Registered:
    versions = state.versions(subject) if with_deleted else state.live_versions(subject)
    if not versions:
        raise errors.subject_not_found(subject)
    if version is None:
        return versions[-1]
    found = next((one for one in versions if one.version == version), None)
    if found is None:
        raise errors.version_not_found(version)
    return found


def delete_version(state: RegistryState, subject: str, version: int | None) -> list[Change]:
    """Softly: it can still be read by its id."""
    check_writable(state, subject)
    if version is not None:
        held = state.version(subject, version)
        if held is not None and held.is_deleted:
            raise errors.version_soft_deleted(subject, version)
    one = get_version(state, subject, version)
    _check_unreferenced(state, one)
    return [SchemaWritten(replace(one, is_deleted=True))]


def remove_version(state: RegistryState, subject: str, version: int | None) -> list[Change]:
    """For good, after a soft delete."""
    check_writable(state, subject)
    one = get_version(state, subject, version, with_deleted=True)
    if not one.is_deleted:
        raise errors.version_not_soft_deleted(subject, one.version)
    _check_unreferenced(state, one)
    return [SchemaRemoved(subject, one.version)]


def delete_subject(state: RegistryState, subject: str) -> list[Change]:
    """Softly: all its versions, its config and its mode."""
    check_writable(state, subject)
    if not state.versions(subject):
        raise errors.subject_not_found(subject)
    versions = state.live_versions(subject)
    if not versions:
        raise errors.subject_soft_deleted(subject)
    for one in versions:
        _check_unreferenced(state, one)
    changes: list[Change] = [SubjectDeleted(subject, versions[-1].version)]
    return changes + _forget_settings(state, subject)


def remove_subject(state: RegistryState, subject: str) -> list[Change]:
    """For good, after a soft delete."""
    check_writable(state, subject)
    versions = state.versions(subject)
    if not versions:
        raise errors.subject_not_found(subject)
    if state.live_versions(subject):
        raise errors.subject_not_soft_deleted(subject)
    for one in versions:
        _check_unreferenced(state, one)
    changes: list[Change] = [SchemaRemoved(subject, one.version) for one in versions]
    return changes + _forget_settings(state, subject)


def _forget_settings(state: RegistryState, subject: str) -> list[Change]:
    changes: list[Change] = []
    if state.own_config(subject) is not None:
        changes.append(ConfigSet(subject, None))
    if state.own_mode(subject) is not None:
        changes.append(ModeSet(subject, None))
    return changes


def version_of(change: Change) -> int:
    """The version that a delete was about."""
    assert isinstance(change, (SchemaWritten, SchemaRemoved))
    return change.version if isinstance(change, SchemaRemoved) else change.registered.version


def _check_unreferenced(state: RegistryState, one: Registered) -> None:
    if state.referrers(one.subject, one.version):
        raise errors.still_referenced(one.subject, one.version)


# -- configs and modes -----------------------------------------------------------------


def set_config(state: RegistryState, subject: str | None, config: Config) -> list[Change]:
    """What `config` leaves open stays as it is."""
    check_writable(state, subject)
    held = state.own_config(subject) or Config()
    merged = Config(
        held.compatibility if config.compatibility is None else config.compatibility,
        held.normalize if config.normalize is None else config.normalize,
    )
    return [ConfigSet(subject, merged)]


def delete_config(state: RegistryState, subject: str | None) -> list[Change]:
    check_writable(state, subject)
    if subject is not None and state.own_config(subject) is None:
        raise errors.no_subject_config(subject)
    return [ConfigSet(subject, None)]


def set_mode(
    state: RegistryState, subject: str | None, mode: Mode, *, is_forced: bool
) -> list[Change]:
    """Ids that are imported could meet those that exist, so IMPORT wants an empty subject."""
    held = state.subjects() if subject is None else state.versions(subject)
    if mode is Mode.IMPORT and held and not is_forced:
        where = "the registry" if subject is None else f"subject {subject}"
        raise errors.not_permitted(
            f"Cannot change to IMPORT: {where} has schemas. Set force=true to do it nevertheless"
        )
    return [ModeSet(subject, mode)]


def delete_mode(state: RegistryState, subject: str) -> list[Change]:
    if state.own_mode(subject) is None:
        raise errors.no_subject_mode(subject)
    return [ModeSet(subject, None)]
