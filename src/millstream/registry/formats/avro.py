"""Avro schemas: fastavro parses them, and this module writes their canonical text.

The canonical text is the one of Avro's Java library, which other registries store: compact JSON,
attributes in a fixed order, a primitive type as its name alone, names short where the namespace
around them is the same.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from millstream.registry.formats.text import Dependency, InvalidSchema, load_json
from millstream.registry.records import compact_json

PRIMITIVES: Final = (
    "null", "boolean", "int", "long", "float", "double", "bytes", "string",
)  # fmt: skip
_NAMED: Final = ("record", "error", "enum", "fixed")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Attributes that are not properties of the user.
_OWN: Final = {
    "type", "name", "namespace", "doc", "fields", "aliases", "symbols", "size", "items", "values",
}  # fmt: skip
_OWN_OF_FIELDS: Final = {"name", "type", "doc", "default", "order", "aliases"}
_SIZE_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """`tree` has full names everywhere; `names` has what each stands for, dependencies too."""

    text: str
    tree: Any
    names: dict[str, Any]


def parse_avro(text: str, dependencies: Sequence[Dependency] = ()) -> AvroSchema:
    """Each dependency stands behind those that it needs. Raises InvalidSchema."""
    names: dict[str, Any] = {}
    for one in dependencies:
        _parse(load_json(one.text), names)
    value = load_json(text)
    tree = _parse(value, names)
    canonical = compact_json(_canonical(value, ""))
    return AvroSchema(canonical, tree, names)


def _parse(value: Any, names: dict[str, Any]) -> Any:
    try:
        # The hint would mark the value as parsed, and a second parse would do nothing.
        return fastavro.parse_schema(value, names, _write_hint=False)
    except UnknownType as unknown:
        raise InvalidSchema(f"unknown type {unknown.name!r}; is a reference missing?") from None
    except SchemaParseException as wrong:
        raise InvalidSchema(str(wrong)) from None
    except KeyError as missing:
        raise InvalidSchema(f"the attribute {missing} is missing") from None
    except (TypeError, ValueError, AttributeError) as wrong:
        raise InvalidSchema(f"not an Avro schema: {wrong}") from None
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None


def _canonical(value: Any, space: str) -> Any:
    """A schema that fastavro has accepted, in canonical order, inside of the namespace `space`.

    Raises InvalidSchema for what fastavro lets pass."""
    if isinstance(value, str):
        return value if value in PRIMITIVES else _short(_full(value, space), space)
    if isinstance(value, list):
        return _union(value, space)
    if not isinstance(value, dict):
        raise InvalidSchema(f"a schema is a string, an object or an array, not {value!r}")
    kind = value.get("type")
    if isinstance(kind, (dict, list)):
        # A wrapper around another schema adds nothing.
        return _canonical(kind, space)
    if kind in _NAMED:
        return _named(value, kind, space)
    properties = _properties(value, _OWN)
    if kind == "array":
        return {"type": "array", "items": _canonical(value["items"], space), **properties}
    if kind == "map":
        return {"type": "map", "values": _canonical(value["values"], space), **properties}
    if kind in PRIMITIVES:
        return {"type": kind, **properties} if properties else kind
    return _canonical(kind, space)


def _union(branches: list[Any], space: str) -> list[Any]:
    kinds = [_kind(one, space) for one in branches]
    if "union" in kinds:
        raise InvalidSchema("a union cannot contain a union directly")
    _check_unique(kinds, "branches of a union")
    return [_canonical(one, space) for one in branches]


def _named(value: dict[str, Any], kind: str, space: str) -> dict[str, Any]:
    full = _full(value["name"], value.get("namespace", space))
    inside, _, short = full.rpartition(".")
    for part in full.split("."):
        _check_name(part)
    found: dict[str, Any] = {"type": kind, "name": short}
    if inside != space and inside:
        found["namespace"] = inside
    if "doc" in value:
        found["doc"] = value["doc"]
    if kind in ("record", "error"):
        if not isinstance(value.get("fields"), list):
            raise InvalidSchema(f"the record {full} has no list of fields")
        found["fields"] = [_field(one, inside) for one in value["fields"]]
        _check_unique([one["name"] for one in found["fields"]], f"fields of {full}")
    elif kind == "enum":
        found["symbols"] = value["symbols"]
        _check_symbols(value, full)
    else:
        found["size"] = value["size"]
        if type(value["size"]) is not int or not 0 <= value["size"] <= _SIZE_MAX:
            raise InvalidSchema(f"the size of {full} is not a number of bytes")
    if kind == "enum" and "default" in value:
        found["default"] = value["default"]
    found.update(_properties(value, _OWN | {"default"} if kind == "enum" else _OWN))
    if _aliases(value):
        found["aliases"] = value["aliases"]
    return found


def _field(value: dict[str, Any], space: str) -> dict[str, Any]:
    _check_name(value["name"])
    found: dict[str, Any] = {
        "name": value["name"],
        "type": _canonical(value["type"], space),
    }
    if "doc" in value:
        found["doc"] = value["doc"]
    if "default" in value:
        found["default"] = value["default"]
    if value.get("order", "ascending") != "ascending":
        found["order"] = value["order"]
    if _aliases(value):
        found["aliases"] = value["aliases"]
    return {**found, **_properties(value, _OWN_OF_FIELDS)}


def _aliases(value: dict[str, Any]) -> list[str]:
    found = value.get("aliases", [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InvalidSchema(f"the aliases of {value['name']} are not a list of names")
    return found


def _properties(value: dict[str, Any], own: set[str]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name not in own}


def _kind(schema: Any, space: str) -> str:
    """What a union may have once: a type, or a name."""
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES else _full(schema, space)
    if isinstance(schema, list):
        return "union"
    kind = schema.get("type")
    if kind in _NAMED:
        return _full(schema["name"], schema.get("namespace", space))
    return _kind(kind, space) if isinstance(kind, (dict, list)) else str(kind)


def _full(name: str, space: str | None) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _short(full: str, space: str) -> str:
    inside, _, short = full.rpartition(".")
    return short if inside == space else full


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSchema(f"{name!r} is not a name: letters, digits and _, no digit first")


def _check_symbols(value: dict[str, Any], full: str) -> None:
    if not isinstance(value["symbols"], list):
        raise InvalidSchema(f"the symbols of {full} are not a list")
    for symbol in value["symbols"]:
        _check_name(symbol)
    _check_unique(value["symbols"], f"symbols of {full}")


def _check_unique(names: list[str], where: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidSchema(f"{twice[0]!r} is twice in the {where}")
