"""JSON Schema: does a schema accept every document that another one accepts?

The question has no complete answer, so this follows the rules that Confluent documents. What they
call the content model of an object decides about properties: it is open if properties that are not
named may have any value, closed if there may be none, and partially open in between. Adding a
property to an open content model is refused, because old data may have it with any value.

Keywords without a rule of their own must be equal, or be gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import re2
from referencing.exceptions import Unresolvable

from millstream.registry.compatibility.difference import (
    DIFFERENCES_MAX,
    PAIRS_MAX,
    Difference,
    TooManyPairs,
)
from millstream.registry.formats.json_schema import JsonSchema
from millstream.registry.records import compact_json

_TYPES: Final = {"array", "boolean", "integer", "null", "number", "object", "string"}
# A reader's limit must not be lower than that of the writer.
_UPPER: Final = (
    "maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties",
)  # fmt: skip
_LOWER: Final = (
    "minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties",
)  # fmt: skip
_ZERO_BY_DEFAULT: Final = ("minLength", "minItems", "minProperties")
# Those that say which values are valid, and have no rule of their own here.
_EQUAL_OR_GONE: Final = (
    "pattern", "contains", "propertyNames", "dependencies", "dependentRequired",
    "dependentSchemas", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems",
    "minContains", "maxContains",
)  # fmt: skip
_SUMS: Final = ("oneOf", "anyOf")
_REFERENCES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of a schema, and what its references are relative to."""

    value: Any
    resolver: Any

    def part(self, value: Any) -> "_Node":
        return _Node(value, self.resolver)

    def get(self, keyword: str) -> Any:
        return self.value.get(keyword) if isinstance(self.value, dict) else None

    def parts(self, keyword: str) -> "list[_Node]":
        return [self.part(one) for one in self.get(keyword) or ()]

    @property
    def takes_all(self) -> bool:
        return self.value is True or self.value == {}

    @property
    def takes_nothing(self) -> bool:
        return self.value is False


def compare_json_schema(reader: JsonSchema, writer: JsonSchema) -> list[Difference]:
    """Why `reader` refuses documents that `writer` accepts; nothing if it does not.

    Raises TooManyPairs."""
    try:
        return _Comparison().compare(_root(reader), _root(writer), "#")
    except (TypeError, AttributeError, ValueError) as wrong:
        # A reference may lead to any place of the document, also to one that is no schema.
        text = f"A reference leads to what is not a schema: {wrong}"
        return [Difference("NOT_A_SCHEMA", "#", text)]


def _root(schema: JsonSchema) -> _Node:
    return _Node(schema.tree, schema.resources.resolver(schema.base))


class _Comparison:
    def __init__(self) -> None:
        # A pair that is being compared counts as equal inside of itself: schemas may be recursive.
        self._known: dict[tuple[int, int], list[Difference]] = {}
        # Keeps the parts of the pairs alive, so that their identities stay theirs.
        self._kept: list[object] = []
        self._pairs = 0

    def _count(self, pairs: int = 1) -> None:
        self._pairs += pairs
        if self._pairs > PAIRS_MAX:
            raise TooManyPairs

    def compare(self, reader: _Node, writer: _Node, path: str) -> list[Difference]:
        self._count()
        reader, writer = _resolved(reader), _resolved(writer)
        if reader.takes_all or writer.takes_nothing:
            return []
        if reader.takes_nothing:
            return [Difference("TYPE_NARROWED", path, "Nothing is accepted any more")]
        pair = (id(reader.value), id(writer.value))
        if pair not in self._known:
            self._kept += [reader.value, writer.value]
            self._known[pair] = []
            self._known[pair] = list(self._compare(reader, writer, path))[:DIFFERENCES_MAX]
        return self._known[pair]

    def _compare(self, reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
        alternatives = _alternatives(writer)
        if alternatives and not _alternatives(reader):
            beside = {key: part for key, part in writer.value.items() if key not in _SUMS}
            # Enough is what holds for all alternatives, or each of them.
            if self.compare(reader, writer.part(beside), path):
                for branch in alternatives:
                    yield from self.compare(reader, branch, path)
            return
        own = list(self._own(reader, writer, path))
        # A document of the writer satisfies each part of its allOf: any of them may be enough.
        if own and any(not self.compare(reader, one, path) for one in writer.parts("allOf")):
            return
        yield from own
        yield from self._combined(reader, writer, path)

    def _own(self, reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
        """Of the keywords beside those that combine schemas."""
        yield from _types(reader, writer, path)
        yield from _values(reader, writer, path)
        yield from _limits(reader, writer, path)
        for keyword in _EQUAL_OR_GONE:
            wanted = reader.get(keyword)
            if wanted is not None and wanted != writer.get(keyword):
                change = "ADDED" if writer.get(keyword) is None else "CHANGED"
                kind = f"{_screaming(keyword)}_{change}"
                yield Difference(kind, f"{path}/{keyword}", f"{keyword} was {change.lower()}")
        yield from self._required(reader, writer, path)
        yield from self._properties(reader, writer, path)
        yield from self._items(reader, writer, path)

    # -- combined schemas -------------------------------------------------------------

    def _combined(self, reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
        for index, part in enumerate(reader.parts("allOf")):
            sources = [writer, *writer.parts("allOf")]
            if all(self.compare(part, source, path) for source in sources):
                text = "A part of allOf refuses what the other schema accepts"
                yield Difference("PRODUCT_TYPE_EXTENDED", f"{path}/allOf/{index}", text)
        branches = _alternatives(reader)
        if branches:
            for source in _alternatives(writer) or [writer]:
                if all(self.compare(branch, source, path) for branch in branches):
                    text = "An alternative of the other schema is accepted by none of this one"
                    yield Difference("SUM_TYPE_NARROWED", path, text)
        if reader.get("not") is not None:
            refused = reader.part(reader.get("not"))
            # What this one refuses must be refused by the other one, too.
            if writer.get("not") is None or self.compare(
                writer.part(writer.get("not")), refused, path
            ):
                text = "Values are refused that the other schema accepts"
                yield Difference("NOT_TYPE_EXTENDED", f"{path}/not", text)

    # -- objects ----------------------------------------------------------------------

    def _required(self, reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
        properties = reader.get("properties") or {}
        known = writer.get("properties") or {}
        before = _names(writer.get("required"))
        for name in _names(reader.get("required")):
            if name in before:
                continue
            if name in properties and _has_default(_resolved(reader.part(properties[name])).value):
                continue
            if name in known or name not in properties:
                text = f"The property '{name}' is required now and has no default"
                yield Difference("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}", text)

    def _properties(self, reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
        named, written = reader.get("properties") or {}, writer.get("properties") or {}
        required = _names(reader.get("required"))
        for name, value in named.items():
            where, part = f"{path}/properties/{name}", reader.part(value)
            if name in written:
                yield from self.compare(part, writer.part(written[name]), where)
            else:
                yield from self._added(part, writer, name, where, is_required=name in required)
        for name, value in written.items():
            if name not in named:
                where = f"{path}/properties/{name}"
                yield from self._removed(reader, writer.part(value), name, where)
        yield from self._additional(reader, writer, path)

    def _added(
        self, part: _Node, writer: _Node, name: str, where: str, *, is_required: bool
    ) -> Iterator[Difference]:
        model = self._covering(writer, name)
        if not model.takes_nothing:
            if model.takes_all and not _resolved(part).takes_all:
                text = f"The property '{name}' was added, and the other content model is open"
                yield Difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", where, text)
                return
            if self.compare(part, model, where):
                text = f"The property '{name}' refuses what could be there without being named"
                kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                yield Difference(kind, where, text)
                return
        if is_required and not _has_default(_resolved(part).value):
            text = f"The property '{name}' was added, is required and has no default"
            yield Difference("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", where, text)

    def _removed(self, reader: _Node, part: _Node, name: str, where: str) -> Iterator[Difference]:
        model = self._covering(reader, name)
        if model.takes_nothing and not _resolved(part).takes_nothing:
            text = f"The property '{name}' was removed, and the content model is closed"
            yield Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", where, text)
        elif self.compare(model, part, where):
            text = f"The property '{name}' was removed, and what stands for it refuses its values"
            kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            yield Difference(kind, where, text)

    def _covering(self, node: _Node, name: str) -> _Node:
        """The schema of a property that is not named."""
        for pattern, value in (node.get("patternProperties") or {}).items():
            self._count()
            if _matches(pattern, name):
                return node.part(value)
        return _resolved(_additional_of(node))

    def _additional(self, reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
        """Properties that neither schema names."""
        ours, theirs = _additional_of(reader), _additional_of(writer)
        where = f"{path}/additionalProperties"
        if ours.takes_nothing and not theirs.takes_nothing:
            text = "Properties that are not named are refused now"
            yield Difference("ADDITIONAL_PROPERTIES_REMOVED", where, text)
        elif self.compare(ours, theirs, where):
            text = "Properties that are not named are restricted more than before"
            yield Difference("ADDITIONAL_PROPERTIES_NARROWED", where, text)
        patterns = writer.get("patternProperties") or {}
        for pattern, value in (reader.get("patternProperties") or {}).items():
            source = writer.part(patterns[pattern]) if pattern in patterns else theirs
            if self.compare(reader.part(value), source, f"{path}/patternProperties/{pattern}"):
                text = f"Properties that match '{pattern}' are restricted more than before"
                yield Difference("PATTERN_PROPERTIES_NARROWED", path, text)

    # -- arrays -----------------------------------------------------------------------

    def _items(self, reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
        first, rest = _items_of(reader)
        their_first, their_rest = _items_of(writer)
        for index in range(max(len(first), len(their_first))):
            ours = first[index] if index < len(first) else rest
            theirs = their_first[index] if index < len(their_first) else their_rest
            yield from self.compare(ours, theirs, f"{path}/items/{index}")
        yield from self.compare(rest, their_rest, f"{path}/items")
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            yield Difference(
                "UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "Items must be unique now"
            )


def _resolved(node: _Node) -> _Node:
    """What a reference leads to. What stands beside a $ref counts only for later drafts, and is
    left out here."""
    for _ in range(_REFERENCES_MAX):
        if not isinstance(node.get("$ref"), str):
            return node
        try:
            found = node.resolver.lookup(node.get("$ref"))
        except (Unresolvable, ValueError, TypeError, AttributeError):
            # One to a draft of JSON Schema itself: any schema.
            return node.part(True)
        node = _Node(found.contents, found.resolver)
    # References that lead to each other accept nothing and mean nothing.
    return node.part(True)


def _alternatives(node: _Node) -> list[_Node]:
    return [part for keyword in _SUMS for part in node.parts(keyword)]


def _types(reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
    accepted, written = _types_of(reader) or _TYPES, _types_of(writer)
    if written is None:
        # Written by one of the combined schemas, or any value at all.
        written = set() if _combines(writer) else _TYPES
    missing = written - accepted - ({"integer"} if "number" in accepted else set())
    if missing:
        kind = "TYPE_NARROWED" if accepted & written else "TYPE_CHANGED"
        text = f"{' and '.join(sorted(missing))} is not accepted"
        yield Difference(kind, f"{path}/type", text)


def _types_of(node: _Node) -> set[str] | None:
    kind = node.get("type")
    if kind is not None:
        return {kind} if isinstance(kind, str) else set(kind)
    values = _values_of(node)
    return None if values is None else {_type_of(one) for one in values}


def _combines(node: _Node) -> bool:
    return any(node.get(keyword) is not None for keyword in (*_SUMS, "allOf"))


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, kind):
            return name
    return "array" if isinstance(value, list) else "object"


def _values_of(node: _Node) -> list[Any] | None:
    if isinstance(node.value, dict) and "const" in node.value:
        return [node.value["const"]]
    values: list[Any] | None = node.get("enum")
    return values


def _values(reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
    accepted, written = _values_of(reader), _values_of(writer)
    if accepted is None:
        return
    # As text, because values may be lists and objects, and there may be many.
    known = {compact_json(one) for one in accepted}
    if written is None or any(compact_json(one) not in known for one in written):
        text = "Values of the other schema are not in the enum"
        yield Difference("ENUM_ARRAY_NARROWED", f"{path}/enum", text)


def _limits(reader: _Node, writer: _Node, path: str) -> Iterator[Difference]:
    for keywords, sign in ((_UPPER, 1), (_LOWER, -1)):
        for keyword in keywords:
            ours, theirs = reader.get(keyword), writer.get(keyword)
            # Booleans are the exclusive limits of draft 4.
            if isinstance(ours, bool) or isinstance(theirs, bool):
                if ours and ours != theirs:
                    text = f"{keyword} excludes the limit now"
                    yield Difference(f"{_screaming(keyword)}_ADDED", f"{path}/{keyword}", text)
                continue
            if ours is None or (theirs is not None and (theirs - ours) * sign <= 0):
                continue
            if theirs is None and ours == 0 and keyword in _ZERO_BY_DEFAULT:
                continue
            change = "ADDED" if theirs is None else ("DECREASED" if sign > 0 else "INCREASED")
            text = f"{keyword} is {ours}, and was {'not set' if theirs is None else theirs}"
            yield Difference(f"{_screaming(keyword)}_{change}", f"{path}/{keyword}", text)
    ours, theirs = reader.get("multipleOf"), writer.get("multipleOf")
    if ours is not None and (theirs is None or theirs % ours != 0):
        text = f"multipleOf is {ours}, and was {'not set' if theirs is None else theirs}"
        change = "ADDED" if theirs is None else "CHANGED"
        yield Difference(f"MULTIPLE_OF_{change}", f"{path}/multipleOf", text)


def _additional_of(node: _Node) -> _Node:
    value = node.get("additionalProperties")
    return node.part(True if value is None else value)


def _matches(pattern: str, name: str) -> bool:
    """In linear time, whatever the pattern; one that RE2 does not know matches nothing."""
    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def _items_of(node: _Node) -> tuple[list[_Node], _Node]:
    """The schemas of the first items, and the one of all others."""
    items = node.get("items")
    if node.get("prefixItems") is not None:
        return node.parts("prefixItems"), node.part(True if items is None else items)
    if isinstance(items, list):
        others = node.get("additionalItems")
        return node.parts("items"), node.part(True if others is None else others)
    return [], node.part(True if items is None else items)


def _names(value: Any) -> dict[str, None]:
    """In order, and quick to search."""
    return dict.fromkeys(value) if isinstance(value, list) else {}


def _has_default(value: Any) -> bool:
    return isinstance(value, dict) and "default" in value


def _screaming(keyword: str) -> str:
    """`maxLength` as MAX_LENGTH."""
    return "".join(f"_{one}" if one.isupper() else one.upper() for one in keyword)
