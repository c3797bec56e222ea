"""One option: what it is called, what it may hold, and what it does here.

Knows nothing of where values come from; `parse_value` and `format_value` turn a value
into Kafka's text and back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from millstream.errors import StartError

Value = bool | int | float | str | tuple[str, ...] | None

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigError(StartError):
    """A setting that cannot be used. The text is one line for a person."""


class Kind(IntEnum):
    """Types of options, numbered as DescribeConfigs answers them."""

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
    # Setting it to anything but its default stops the start: quietly ignoring it would
    # leave the user with less than was asked for.
    REFUSED = "refused"


class Source(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs answers it."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table. `synonyms` are asked in order where the option itself is not set."""

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


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that was considered: by its own name and in its own unit."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Described:
    """What DescribeConfigs says of one option. Sensitive values are None."""

    option: Option
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    is_read_only: bool

    @property
    def name(self) -> str:
        return self.option.name

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT


_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}
_LIMITS: Final[Mapping[Kind, int]] = {
    Kind.SHORT: 2**15 - 1,
    Kind.INT: INT_MAX,
    Kind.LONG: LONG_MAX,
}


def parse_value(option: Option, text: str) -> Value:
    """The typed value of `text`. Raises ConfigError where it is not allowed."""
    text = text.strip()
    match option.kind:
        case Kind.BOOLEAN:
            if text.lower() not in _BOOLEANS:
                raise ConfigError(f"{option.name}: {text!r} is neither true nor false")
            return _BOOLEANS[text.lower()]
        case Kind.INT | Kind.SHORT | Kind.LONG:
            return _parse_integer(option, text)
        case Kind.DOUBLE:
            return _parse_double(option, text)
        case Kind.LIST:
            items = tuple(item.strip() for item in text.split(",")) if text else ()
            for item in items:
                _check_choice(option, item)
            return items
        case Kind.STRING | Kind.CLASS | Kind.PASSWORD:
            _check_choice(option, text)
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


def _parse_integer(option: Option, text: str) -> int:
    try:
        # int() also takes "1_000" and spaces inside, which Kafka does not.
        number = int(text) if "_" not in text else int("")
    except ValueError:
        raise ConfigError(f"{option.name}: {text!r} is not a whole number") from None
    limit = _LIMITS[option.kind]
    if not -limit - 1 <= number <= limit:
        raise ConfigError(f"{option.name}: {text} does not fit {option.kind.name.lower()}")
    _check_bounds(option, number)
    return number


def _parse_double(option: Option, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{option.name}: {text!r} is not a number") from None
    if math.isnan(number):
        raise ConfigError(f"{option.name}: {text!r} is not a number")
    _check_bounds(option, number)
    return number


def _check_bounds(option: Option, number: float) -> None:
    if option.minimum is not None and number < option.minimum:
        raise ConfigError(f"{option.name}: {number} is less than {option.minimum}")
    if option.maximum is not None and number > option.maximum:
        raise ConfigError(f"{option.name}: {number} is more than {option.maximum}")


def _check_choice(option: Option, text: str) -> None:
    if option.choices and text not in option.choices:
        allowed = ", ".join(option.choices)
        raise ConfigError(f"{option.name}: {text!r} is not one of {allowed}")
