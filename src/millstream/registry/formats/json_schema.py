"""JSON Schemas: jsonschema checks them against the draft that they name, 7 if they name none.

References lead to the same document or to a schema that the registration names. Nothing is ever
fetched from a network.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, SchemaRegistry, SchemaResource, specification_with

from millstream.registry.formats.text import Dependency, InvalidSchema, load_json
from millstream.registry.records import compact_json

_ROOT: Final = "urn:millstream:schema"
_MIXED_VALUES_MAX: Final = 2_000
# Schemas whose parts below them are data, not schemas.
_DATA: Final = ("enum", "const", "default", "examples")


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """`resources` has the document itself, as `base`, and its dependencies by their names."""

    text: str
    tree: Any
    base: str
    resources: SchemaRegistry


def parse_json_schema(text: str, dependencies: Sequence[Dependency] = ()) -> JsonSchema:
    """Raises InvalidSchema."""
    value = load_json(text)
    _check(value)
    base = value.get("$id", _ROOT) if isinstance(value, dict) else _ROOT
    try:
        resources = _resources(dependencies).with_resource(base, _resource(value)).crawl()
    except (ValueError, TypeError, AttributeError) as wrong:
        # Of $schema and $id anywhere, and of parts that are not schemas where schemas belong.
        raise InvalidSchema(f"not a JSON Schema: {wrong}") from None
    _check_references(value, base, resources)
    return JsonSchema(compact_json(value), value, base, resources)


def _resources(dependencies: Sequence[Dependency]) -> SchemaRegistry:
    resources: SchemaRegistry = Registry()
    for one in dependencies:
        tree = load_json(one.text)
        resource = _resource(tree)
        resources = resources.with_resource(one.name, resource)
        if isinstance(tree, dict) and isinstance(tree.get("$id"), str):
            resources = resources.with_resource(tree["$id"], resource)
    return resources


def normalized_json_schema(schema: JsonSchema) -> str:
    """Text with sorted attributes, so that their order does not make another schema."""
    return compact_json(_sorted(schema.tree))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _check(value: Any) -> None:
    if not isinstance(value, (dict, bool)):
        raise InvalidSchema("a JSON Schema is an object or a boolean")
    if isinstance(value, dict):
        draft = value.get("$schema", "")
        if not isinstance(draft, str) or not isinstance(value.get("$id", ""), str):
            raise InvalidSchema("$schema and $id are strings")
    _check_lists(value)
    try:
        validator_for(value, default=Draft7Validator).check_schema(value)
    except ValueError as wrong:
        raise InvalidSchema(f"$schema is not a URI: {wrong}") from None
    except SchemaError as wrong:
        where = "/".join(str(part) for part in wrong.absolute_path)
        raise InvalidSchema(f"at /{where}: {wrong.message[:500]}") from None
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None


def _check_lists(value: Any) -> None:
    """Some drafts want the values of a list to be unique. For texts or numbers alone this is quick
    to see; of other lists, jsonschema compares each value with every other one."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list):
            kinds = {type(one) for one in part}
            is_plain = kinds <= {str} or kinds <= {int, float}
            if len(part) > _MIXED_VALUES_MAX and not is_plain:
                raise InvalidSchema(
                    f"a list of {len(part)} values that are not all texts or all numbers; "
                    f"it may have {_MIXED_VALUES_MAX}"
                )
            parts += part


def _resource(value: Any) -> SchemaResource:
    draft = value.get("$schema") if isinstance(value, dict) else None
    specification = specification_with(draft, default=DRAFT7) if draft else DRAFT7
    return specification.create_resource(value)


def _check_references(value: Any, base: str, resources: SchemaRegistry) -> None:
    resolver = resources.resolver(base)
    for target in set(_references(value)):
        # Those to the drafts themselves are known to every validator.
        if target.startswith(("http://json-schema.org/", "https://json-schema.org/")):
            continue
        try:
            resolver.lookup(target)
        except (Unresolvable, ValueError, TypeError, AttributeError):
            raise InvalidSchema(
                f"$ref {target!r} leads nowhere. Name the schema it stands for in references"
            ) from None


def _references(value: Any) -> Iterator[str]:
    """Of the document's own base. Parts with their own $id resolve from there, so they are left
    to those who read data with the schema."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for name, part in value.items():
            if name in _DATA or (isinstance(part, dict) and "$id" in part):
                continue
            yield from _references(part)
    elif isinstance(value, list):
        for part in value:
            yield from _references(part)
