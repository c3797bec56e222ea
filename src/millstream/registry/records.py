"""Records of the topic `_schemas`, in the form that other registries read and write.

Keys and values are JSON. Compaction compares keys byte by byte, so keys have a fixed order of
fields and no white space. A record without a value removes what its key names; NOOP means nothing.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from millstream.registry.model import (
    Compatibility,
    Config,
    Content,
    Mode,
    Reference,
    Registered,
    SchemaType,
)


@dataclass(frozen=True, slots=True)
class SchemaWritten:
    """A new version, or a version that was soft-deleted: then `is_deleted` is set."""

    registered: Registered


@dataclass(frozen=True, slots=True)
class SchemaRemoved:
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigSet:
    """For all subjects if `subject` is None; removed if `config` is."""

    subject: str | None
    config: Config | None


@dataclass(frozen=True, slots=True)
class ModeSet:
    """For all subjects if `subject` is None; removed if `mode` is."""

    subject: str | None
    mode: Mode | None


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """Every version up to this one is soft-deleted."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectCleared:
    """Versions that were soft-deleted are gone."""

    subject: str


Change = SchemaWritten | SchemaRemoved | ConfigSet | ModeSet | SubjectDeleted | SubjectCleared

_AVRO: Final = SchemaType.AVRO
# Of a record that changes nothing.
NOOP_KEY: Final = b'{"keytype":"NOOP","magic":0}'


def read_change(key: bytes, value: bytes | None) -> Change | None:
    """None for records that change nothing here: NOOP, and keys of later versions.

    Raises ValueError for what no registry writes."""
    try:
        fields = json.loads(key)
        # Karapace removes with an empty value.
        content = json.loads(value) if value else None
        return _read(fields, content)
    except (KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise ValueError(f"not a record of a schema registry: {wrong!r}") from None


def _read(key: dict[str, Any], value: dict[str, Any] | None) -> Change | None:
    match key["keytype"]:
        case "SCHEMA" if value is None:
            return SchemaRemoved(str(key["subject"]), int(key["version"]))
        case "SCHEMA":
            assert value is not None
            return SchemaWritten(_read_registered(value))
        case "CONFIG":
            return ConfigSet(key.get("subject"), None if value is None else _read_config(value))
        case "MODE":
            mode = None if value is None else Mode(value["mode"])
            return ModeSet(key.get("subject"), mode)
        case "DELETE_SUBJECT" if value is not None:
            return SubjectDeleted(str(key["subject"]), int(value["version"]))
        case "CLEAR_SUBJECT" if value is not None:
            return SubjectCleared(str(key["subject"]))
        case _:
            return None


def _read_registered(value: dict[str, Any]) -> Registered:
    content = Content(
        type=SchemaType(value.get("schemaType") or _AVRO),
        text=str(value["schema"]),
        references=read_references(value.get("references") or []),
        metadata=_as_text(value.get("metadata")),
        rule_set=_as_text(value.get("ruleSet")),
    )
    return Registered(
        subject=str(value["subject"]),
        version=int(value["version"]),
        id=int(value["id"]),
        content=content,
        is_deleted=bool(value.get("deleted", False)),
    )


def read_references(values: list[dict[str, Any]]) -> tuple[Reference, ...]:
    return tuple(
        Reference(str(one["name"]), str(one["subject"]), int(one["version"])) for one in values
    )


def _read_config(value: dict[str, Any]) -> Config:
    level = value.get("compatibilityLevel")
    return Config(None if level is None else Compatibility(level), value.get("normalize"))


def _as_text(value: object) -> str | None:
    return None if value is None else compact_json(value)


def write_change(change: Change) -> tuple[bytes, bytes | None]:
    """Key and value."""
    match change:
        case SchemaWritten(registered):
            return _schema_key(registered.subject, registered.version), _schema_value(registered)
        case SchemaRemoved(subject, version):
            return _schema_key(subject, version), None
        case ConfigSet(subject, config):
            return _key("CONFIG", subject), None if config is None else _config_value(
                subject, config
            )
        case ModeSet(subject, mode):
            value = None if mode is None else _bytes({**_optional(subject=subject), "mode": mode})
            return _key("MODE", subject), value
        case SubjectDeleted(subject, version):
            return _key("DELETE_SUBJECT", subject), _bytes({"subject": subject, "version": version})
        case SubjectCleared(subject):
            return _key("CLEAR_SUBJECT", subject), _bytes({"subject": subject})


def _key(keytype: str, subject: str | None) -> bytes:
    return _bytes({"keytype": keytype, "subject": subject, "magic": 0})


def _schema_key(subject: str, version: int) -> bytes:
    return _bytes({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _schema_value(registered: Registered) -> bytes:
    content = registered.content
    value: dict[str, object] = {
        "subject": registered.subject,
        "version": registered.version,
        "id": registered.id,
        **content_fields(content),
        "deleted": registered.is_deleted,
    }
    return _bytes(value)


def content_fields(content: Content) -> dict[str, object]:
    """As values and REST answers have them: what is usual is left out."""
    found: dict[str, object] = {}
    if content.type is not _AVRO:
        found["schemaType"] = content.type
    if content.references:
        found["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in content.references
        ]
    if content.metadata is not None:
        found["metadata"] = json.loads(content.metadata)
    if content.rule_set is not None:
        found["ruleSet"] = json.loads(content.rule_set)
    found["schema"] = content.text
    return found


def _config_value(subject: str | None, config: Config) -> bytes:
    return _bytes(
        {
            **_optional(subject=subject),
            **_optional(compatibilityLevel=config.compatibility, normalize=config.normalize),
        }
    )


def _optional(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _bytes(value: object) -> bytes:
    return compact_json(value).encode()
