"""The fields of a JSON line as text; `_scan.pyx` does the same with bytes.

Strict JSON, one object and nothing else; only `NaN` and `Infinity`, which some writers write,
are let through. A string is its text, every other value is as it
was written, `null` is None.
"""

import json
import re
from typing import Final

from millstream.lines.layouts import JSON_DEPTH_MAX

Pairs = list[tuple[str, str | None]]

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


def pairs_of(line: str) -> Pairs | None:
    """Every field in the order of the line, repeated names too; None if it is not JSON."""
    try:
        return _pairs_of(line)
    except (ValueError, IndexError, RecursionError):
        return None


def _pairs_of(line: str) -> Pairs:
    at = _skip(line, 0)
    if line[at] != "{":
        raise ValueError("not an object")
    at = _skip(line, at + 1)
    found: Pairs = []
    if line[at] == "}":
        return _ended(line, at + 1, found)
    while True:
        if line[at] != '"':
            raise ValueError("not a name")
        name, at = _DECODER.raw_decode(line, at)
        at = _skip(line, at)
        if line[at] != ":":
            raise ValueError("no value")
        start = _skip(line, at + 1)
        value, at = _DECODER.raw_decode(line, start)
        found.append((_clean(name), _text(value, line[start:at])))
        at = _skip(line, at)
        if line[at] == "}":
            return _ended(line, at + 1, found)
        if line[at] != ",":
            raise ValueError("no end")
        at = _skip(line, at + 1)


def _skip(line: str, at: int) -> int:
    spaces = _SPACE.match(line, at)
    assert spaces is not None
    return spaces.end()


def _ended(line: str, at: int, found: Pairs) -> Pairs:
    if _skip(line, at) != len(line):
        raise ValueError("something behind the object")
    return found


def _text(value: object, written: str) -> str | None:
    if written[0] == '"':
        assert isinstance(value, str)
        return _clean(value)
    if isinstance(value, dict | list) and _depth(written) >= JSON_DEPTH_MAX:
        raise ValueError("too deep")
    return None if value is None else written


def _clean(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


def _depth(written: str) -> int:
    depth = deepest = 0
    for letter in _STRING.sub("", written):
        if letter in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "}]":
            depth -= 1
    return deepest
