"""Avro: which data a schema can read, by the rules for schema resolution in Avro's specification.

Names are compared without their namespaces, as Avro's Java library does. Logical types are not
compared: the data below them is.
"""

from typing import Any, Final

from millstream.registry.compatibility.difference import (
    DIFFERENCES_MAX,
    PAIRS_MAX,
    Difference,
    TooManyPairs,
)
from millstream.registry.formats.avro import PRIMITIVES, AvroSchema

# What a reader takes besides its own type.
_PROMOTED_FROM: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}


def compare_avro(reader: AvroSchema, writer: AvroSchema) -> list[Difference]:
    """Why `reader` cannot read what `writer` wrote; nothing if it can. Raises TooManyPairs."""
    return _Comparison(reader.names, writer.names).compare(reader.tree, writer.tree, "")


class _Comparison:
    def __init__(self, reader_names: dict[str, Any], writer_names: dict[str, Any]) -> None:
        self._reader_names = reader_names
        self._writer_names = writer_names
        # A pair that is being compared counts as equal inside of itself: schemas may be recursive.
        self._known: dict[tuple[int, int], list[Difference]] = {}
        self._pairs = 0

    def compare(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        self._pairs += 1
        if self._pairs > PAIRS_MAX:
            raise TooManyPairs
        reader = _resolved(reader, self._reader_names)
        writer = _resolved(writer, self._writer_names)
        if isinstance(reader, str) and isinstance(writer, str):
            return self._different_kinds(reader, writer, path)
        # Resolved parts live as long as the schemas, so their identity is a key.
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []
            self._known[pair] = self._compare(reader, writer, path)[:DIFFERENCES_MAX]
        return self._known[pair]

    def _compare(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        if isinstance(writer, list):
            # Whatever branch was written must be readable.
            found = []
            for index, branch in enumerate(writer):
                if self.compare(reader, branch, path):
                    found.append(
                        Difference(
                            "MISSING_UNION_BRANCH",
                            path,
                            f"The new type lacks the branch {_name(branch)} "
                            f"(number {index}) of the old union",
                        )
                        if isinstance(reader, list)
                        else Difference(
                            "TYPE_MISMATCH",
                            path,
                            f"{_name(reader)} cannot read the branch {_name(branch)}",
                        )
                    )
            return found
        if isinstance(reader, list):
            if any(not self.compare(branch, writer, path) for branch in reader):
                return []
            return [
                Difference(
                    "MISSING_UNION_BRANCH", path, f"No branch of the union reads {_name(writer)}"
                )
            ]
        kind, other = _kind(reader), _kind(writer)
        if kind != other:
            return self._different_kinds(kind, other, path)
        match kind:
            case "array":
                return self.compare(reader["items"], writer["items"], f"{path}/items")
            case "map":
                return self.compare(reader["values"], writer["values"], f"{path}/values")
            case "enum":
                return _compare_names(reader, writer, path) or _compare_symbols(
                    reader, writer, path
                )
            case "fixed":
                return _compare_names(reader, writer, path) or _compare_sizes(reader, writer, path)
            case "record":
                return _compare_names(reader, writer, path) or self._fields(reader, writer, path)
        return []

    @staticmethod
    def _different_kinds(reader: str, writer: str, path: str) -> list[Difference]:
        if reader == writer or writer in _PROMOTED_FROM.get(reader, ()):
            return []
        return [Difference("TYPE_MISMATCH", path, f"{reader} cannot read {writer}")]

    def _fields(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        written = {field["name"]: field for field in writer["fields"]}
        found: list[Difference] = []
        for index, field in enumerate(reader["fields"]):
            where = f"{path}/fields/{index}"
            names = [field["name"], *field.get("aliases", ())]
            source = next((written[name] for name in names if name in written), None)
            if source is not None:
                found += self.compare(field["type"], source["type"], f"{where}/type")
            elif "default" not in field:
                found.append(
                    Difference(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        where,
                        f"The field '{field['name']}' has no default value and is missing in the "
                        "other schema",
                    )
                )
        return found


def _resolved(schema: Any, names: dict[str, Any]) -> Any:
    """A name as what it stands for, a primitive type as its name, an error as a record."""
    if isinstance(schema, str) and schema not in PRIMITIVES:
        return names[schema]
    if isinstance(schema, dict) and schema["type"] in PRIMITIVES:
        return schema["type"]
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return _resolved(schema["type"], names)
    return schema


def _kind(schema: Any) -> str:
    kind = schema if isinstance(schema, str) else str(schema["type"])
    return "record" if kind == "error" else kind


def _name(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema.get("name", schema["type"]))


def _compare_names(reader: Any, writer: Any, path: str) -> list[Difference]:
    short = reader["name"].rpartition(".")[2]
    space = reader["name"].rpartition(".")[0]
    aliases = [
        one if "." in one or not space else f"{space}.{one}" for one in reader.get("aliases", ())
    ]
    if short == writer["name"].rpartition(".")[2] or writer["name"] in aliases:
        return []
    text = f"The name {reader['name']} is not {writer['name']}, and no alias is"
    return [Difference("NAME_MISMATCH", f"{path}/name", text)]


def _compare_symbols(reader: Any, writer: Any, path: str) -> list[Difference]:
    known = set(reader["symbols"])
    missing = [one for one in writer["symbols"] if one not in known]
    if not missing or "default" in reader:
        return []
    text = f"The enum {reader['name']} lacks {', '.join(missing[:20])} and has no default"
    return [Difference("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text)]


def _compare_sizes(reader: Any, writer: Any, path: str) -> list[Difference]:
    if reader["size"] == writer["size"]:
        return []
    text = f"The size of {reader['name']} is {reader['size']}, not {writer['size']}"
    return [Difference("FIXED_SIZE_MISMATCH", f"{path}/size", text)]
