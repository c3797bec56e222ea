"""One option: its name, type and allowed values, and whether it works here.

`parse_value` turns Kafka's text into a value, `format_value` a value into text. Knows nothing
of where values come from.
"""

import math
import sys
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final

from millstream.errors import ConfigError
from millstream.lazy_dataclass import dataclass

Value = bool | int | float | str | tuple[str, ...] | None

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Kind(IntEnum):
    """Types of options, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Status(Enum):
    WORKS = "works"
    NO_EFFECT = "accepted, no effect"
    # Any value but the default is an error: to ignore it would give the user less than they
    # asked for.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table. If the option is not set, `synonyms` are asked in this order."""

    name: str
    kind: Kind
    default: Value
    doc: str
    status: Status = Status.NO_EFFECT
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    reason: str = ""
    is_dynamic: bool = False
    synonyms: tuple[str, ...] = ()

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def status_text(self) -> str:
        return f"{self.status.value}, because {self.reason}" if self.reason else self.status.value

    @property
    def documentation(self) -> str:
        """The text that DescribeConfigs returns. It says if the option has no effect here."""
        if self.status is Status.WORKS:
            return self.doc
        return f"{self.doc} Here: {self.status_text}."


_MS_PER_UNIT: Final[Mapping[str, int]] = {"hours": 3_600_000, "minutes": 60_000}
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}
# The largest value of each numeric type.
LARGEST: Final[Mapping[Kind, float]] = {
    Kind.SHORT: 2**15 - 1,
    Kind.INT: INT_MAX,
    Kind.LONG: LONG_MAX,
    Kind.DOUBLE: sys.float_info.max,
}


def parse_value(option: Option, text: str) -> Value:
    """The typed value of `text`. Raises ConfigError if the option does not allow it."""
    try:
        value = typed_value(option.kind, text)
        _check_allowed(option, value)
    except ValueError as problem:
        raise ConfigError(f"{option.name}: {problem}") from None
    return value


def typed_value(kind: Kind, text: str) -> Value:
    """The value of `text` by its type alone. Raises ValueError."""
    text = text.strip()
    match kind:
        case Kind.BOOLEAN:
            if text.lower() not in _BOOLEANS:
                raise ValueError(f"{text!r} is neither true nor false")
            return _BOOLEANS[text.lower()]
        case Kind.INT | Kind.SHORT | Kind.LONG:
            return _parse_integer(kind, text)
        case Kind.DOUBLE:
            return _parse_double(text)
        case Kind.LIST:
            return tuple(item.strip() for item in text.split(",")) if text else ()
        case Kind.STRING | Kind.CLASS | Kind.PASSWORD:
            return text


def format_value(value: Value) -> str | None:
    """A value as Kafka writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def in_unit_of(name: str, found: str, value: int) -> int:
    """The value of option `found` in the unit of option `name`, which is milliseconds or the same.

    -1 means "no limit" in every unit.
    """
    factor = 1 if found == name else _MS_PER_UNIT.get(found.rpartition(".")[2], 1)
    return value * factor if value >= 0 else value


def _parse_integer(kind: Kind, text: str) -> int:
    try:
        # int() also takes "1_000" and spaces inside, which Kafka does not.
        number = int(text) if "_" not in text else int("")
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if not -LARGEST[kind] - 1 <= number <= LARGEST[kind]:
        raise ValueError(f"{text} does not fit {kind.name.lower()}")
    return number


def _parse_double(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"{text!r} is not a number")
    return number


def _check_allowed(option: Option, value: Value) -> None:
    """Raises ValueError for a value outside the option's bounds or choices."""
    match value:
        case int() | float():
            if option.minimum is not None and value < option.minimum:
                raise ValueError(f"{value} is less than {option.minimum}")
            if option.maximum is not None and value > option.maximum:
                raise ValueError(f"{value} is more than {option.maximum}")
        case str():
            _check_choice(option, value)
        case tuple():
            for item in value:
                _check_choice(option, item)
        case _:
            pass


def _check_choice(option: Option, text: str) -> None:
    if option.choices and text not in option.choices:
        raise ValueError(f"{text!r} is not one of {', '.join(option.choices)}")
