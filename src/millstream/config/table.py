"""Every option by scope and name, read from `options.txt`, and the search for one.

`options.txt` explains how its rows are written. Tests compare the table with Kafka's own
list of options, and keep `docs/configuration.md` equal to it.
"""

import os.path
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from millstream.config.option import (
    LARGEST,
    Kind,
    Option,
    Status,
    Value,
    in_unit_of,
    typed_value,
)
from millstream.errors import ConfigError
from millstream.lazy_dataclass import dataclass

# Kafka hands every name with such a prefix to a plug-in, so no table lists them.
PLUGIN_PREFIXES: Final = ("rlmm.config.", "rsm.config.", "config.providers.", "kafka.metrics.")
LISTENER_PREFIX: Final = "listener.name."
# Options with these names have an effect per listener.
_PER_LISTENER: Final = ("ssl.", "sasl.")
_ALSO_PER_LISTENER: Final = ("connections.max.reauth.ms", "max.connection.creation.rate")

_KINDS: Final = {kind.name.lower(): kind for kind in Kind}
_STATUSES: Final = {
    "works": Status.WORKS,
    "no effect": Status.NO_EFFECT,
    "refused": Status.REFUSED,
}
_EMPTY: Final = '""'
# After the name: type, default, allowed, status.
_CELLS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Section:
    """Options that are documented together. `scope` is `broker`, `topic` or `group`."""

    scope: str
    title: str
    options: list[Option]


@dataclass(slots=True)
class _Row:
    """An option as the file states it. Cells that say nothing are empty."""

    name: str
    synonyms: tuple[str, ...]
    doc: str
    kind: str = ""
    default: str = ""
    allowed: str = ""
    status: str = ""


def parse_table(text: str) -> list[Section]:
    """The sections of `text`, in order. Raises ValueError for a row that it cannot read."""
    reasons: dict[str, str] = {}
    rows: dict[str, _Row] = {}
    sections: list[Section] = []
    for line, doc in _lines(text):
        if line.startswith("["):
            scope, _, title = line[1:].partition("] ")
            sections.append(Section(scope, title, []))
            continue
        if line.startswith("reason "):
            name, _, reason = line.removeprefix("reason ").partition(" = ")
            reasons[name] = reason
            continue
        section = sections[-1]
        try:
            row = _parse_row(line, doc)
            if section.scope == "broker":
                rows[row.name] = row
            elif row.synonyms:
                _inherit(row, rows)
            section.options.append(_option(row, reasons))
        except (KeyError, ValueError) as problem:
            raise ValueError(f"{line}: {problem!r}") from None
    return sections


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line, with the indented documentation below it or an empty text."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        elif line and not line.startswith("#"):
            found.append((line, []))
    return ((line, " ".join(doc)) for line, doc in found)


def _parse_row(line: str, doc: str) -> _Row:
    head, *cells = [cell.strip() for cell in line.split("|")]
    if len(cells) > _CELLS_MAX:
        raise ValueError("there are too many cells")
    name, _, fallback = head.partition(" -> ")
    return _Row(name, tuple(fallback.split(", ")) if fallback else (), doc, *cells)


def _inherit(row: _Row, rows: Mapping[str, _Row]) -> None:
    """Fill the empty cells from the first fallback."""
    parent = rows[row.synonyms[0]]
    row.kind = row.kind or parent.kind
    row.allowed = row.allowed or parent.allowed
    # A node's option may need a restart; options of topics and groups never do.
    row.status = row.status or parent.status.removesuffix(", dynamic")
    row.doc = row.doc or parent.doc
    row.default = row.default or _default_in_force(row.name, parent, rows)


def _default_in_force(name: str, parent: _Row, rows: Mapping[str, _Row]) -> str:
    """The value of `parent` if nothing is set, in the unit of `name`."""
    for candidate in (parent, *(rows[synonym] for synonym in parent.synonyms)):
        if candidate.default.isdecimal():
            return str(in_unit_of(name, candidate.name, int(candidate.default)))
        if candidate.default:
            return candidate.default
    return ""


def _option(row: _Row, reasons: Mapping[str, str]) -> Option:
    kind = _KINDS[row.kind]
    status, _, trait = row.status.partition(", ")
    status, _, reason = status.partition(": ")
    is_number = ".." in row.allowed
    least, _, most = row.allowed.partition("..") if is_number else ("", "", "")
    choices = row.allowed.split(", ") if row.allowed and not is_number else []
    return Option(
        name=row.name,
        kind=kind,
        default=_parse_value(kind, row.default),
        doc=row.doc,
        status=_STATUSES[status],
        minimum=_parse_bound(kind, least),
        maximum=_parse_bound(kind, most),
        choices=tuple("" if choice == _EMPTY else choice for choice in choices),
        reason=reasons[reason] if reason else "",
        is_dynamic=trait == "dynamic",
        synonyms=row.synonyms,
    )


def _parse_value(kind: Kind, cell: str) -> Value:
    if not cell:
        return None
    if cell == "max":
        return LARGEST[kind]
    return typed_value(kind, "" if cell == _EMPTY else cell)


def _parse_bound(kind: Kind, text: str) -> float | None:
    if not text:
        return None
    return float(text) if kind is Kind.DOUBLE else int(text)


def _read_sections() -> list[Section]:
    # Not importlib.resources: importing it takes longer than reading the table.
    path = os.path.join(os.path.dirname(__file__), "options.txt")
    with open(path, encoding="utf-8") as file:
        return parse_table(file.read())


def _options_of(scope: str) -> Mapping[str, Option]:
    return MappingProxyType(
        {
            option.name: option
            for section in SECTIONS
            if section.scope == scope
            for option in section.options
        }
    )


# In the order of the documentation.
SECTIONS: Final = _read_sections()
BROKER_OPTIONS: Final = _options_of("broker")
TOPIC_OPTIONS: Final = _options_of("topic")
GROUP_OPTIONS: Final = _options_of("group")
CLIENT_METRICS_OPTIONS: Final = _options_of("client-metrics")


def find_broker_option(name: str) -> Option | None:
    """The row for `name`, or None for a plug-in's option. Raises ConfigError for other names.

    `listener.name.internal.ssl.keystore.location` is `ssl.keystore.location` for one
    listener, and `listener.name.internal.plain.sasl.jaas.config` for one mechanism of it.
    """
    option = BROKER_OPTIONS.get(name)
    if option is not None:
        return option
    if name.startswith(PLUGIN_PREFIXES):
        return None
    if name.startswith(LISTENER_PREFIX):
        parts = name.removeprefix(LISTENER_PREFIX).split(".")
        for start in (1, 2):
            option = BROKER_OPTIONS.get(".".join(parts[start:]))
            if option is not None:
                return option
    raise ConfigError(unknown_name(name, BROKER_OPTIONS))


def is_per_listener(name: str) -> bool:
    """Can a listener have its own value for the option `name`?"""
    return name.startswith(_PER_LISTENER) or name in _ALSO_PER_LISTENER


def unknown_name(name: str, table: Mapping[str, Option]) -> str:
    """An error message that suggests the nearest option."""
    # Imported here because only a wrong name needs it.
    import difflib

    nearest = difflib.get_close_matches(name, table, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"there is no option {name!r}{hint}"
