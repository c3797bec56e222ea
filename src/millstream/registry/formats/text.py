"""What the formats share: the schemas that a schema refers to, JSON with limits, the refusal."""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

# Deeper than any schema that people write, and far from Python's limit for functions that walk it.
DEPTH_MAX: Final = 200
# Of a text with such a character, nothing can be written in UTF-8.
HALF_PAIR: Final = "a text has half of a surrogate pair (\\ud800 to \\udfff), which is no character"
# What a double can hold.
_DIGITS_MAX: Final = 300


class InvalidSchema(Exception):
    """The text says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """A schema that another one uses under `name`."""

    name: str
    text: str


def load_json(text: str) -> Any:
    """Raises InvalidSchema."""
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_short
        )
    except json.JSONDecodeError as wrong:
        raise InvalidSchema(
            f"not JSON at line {wrong.lineno}, column {wrong.colno}: {wrong.msg}"
        ) from None
    except ValueError as wrong:
        # Numbers of thousands of digits, too.
        raise InvalidSchema(f"not JSON: {wrong}") from None
    except RecursionError:
        raise InvalidSchema(f"nested deeper than {DEPTH_MAX} levels") from None
    if is_too_deep(value):
        raise InvalidSchema(f"nested deeper than {DEPTH_MAX} levels")
    if not is_unicode(value):
        raise InvalidSchema(f"not JSON: {HALF_PAIR}")
    return value


def is_unicode(value: Any) -> bool:
    """Are all texts in a JSON value valid Unicode? Escapes can make others."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is too large")
    return number


def _short(text: str) -> int:
    """So that it can be compared with any other number."""
    if len(text) > _DIGITS_MAX:
        raise ValueError(f"{text:.40}... has more than {_DIGITS_MAX} digits")
    return int(text)


def is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        if not inner:
            return False
        level = inner
    return True
