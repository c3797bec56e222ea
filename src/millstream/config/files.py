"""Reading option files: TOML, and the .properties syntax of Java.

Knows syntax only: the result is names and texts, whatever they mean.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from millstream.errors import ConfigError

# Only what may stand inside a line: Java also counts form feed as blank.
_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def read_option_file(path: Path) -> dict[str, str]:
    """Names and texts in `path`. The name's ending tells the syntax; without one both are tried."""
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror or problem}") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        # What Java assumes for .properties.
        text = raw.decode("latin-1")
    try:
        if path.suffix == ".toml":
            return parse_toml(text)
        if path.suffix == ".properties":
            return parse_properties(text)
        return _parse_either(text)
    except (ValueError, ConfigError) as problem:
        raise ConfigError(f"{path}: {problem}") from None


def parse_toml(text: str) -> dict[str, str]:
    """Nested tables and quoted dotted keys mean the same: log.retention.ms."""
    # On first use: most nodes are started without a file.
    import tomllib

    return dict(_flatten(tomllib.loads(text), prefix=""))


def parse_properties(text: str) -> dict[str, str]:
    """Comments, continued lines, escapes; the last of several settings of a name counts."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split_line(line)
        settings[_unescape(name)] = _unescape(value)
    return settings


def _parse_either(text: str) -> dict[str, str]:
    try:
        return parse_toml(text)
    except ValueError:
        return parse_properties(text)


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flatten(value, prefix=name + ".")
        elif isinstance(value, list):
            yield name, ",".join(_scalar(name, item) for item in value)
        else:
            yield name, _scalar(name, value)


def _scalar(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name}: {value!r} is not a text, a number or a boolean")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, each with the lines that continue it."""
    pending = ""
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split_line(line: str) -> tuple[str, str]:
    """Name and value: parted by the first =, : or blank that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    name, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return name, rest


def _unescape(text: str) -> str:
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescape_one, text, flags=re.DOTALL)


def _unescape_one(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape == "u":
        raise ConfigError(f"\\u needs four hexadecimal digits: {found.string!r}")
    return _ESCAPES.get(escape, escape)
