"""The values in force: typed getters, and what DescribeConfigs answers for one of them."""

from enum import IntEnum

from millstream.config.option import Option, Value
from millstream.lazy_dataclass import dataclass


class Source(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that was considered, under its own name and in its own unit."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Described:
    """What DescribeConfigs answers for one option. Sensitive values are None."""

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


class TypedValues:
    """Read an option with the getter of its type. `mypy_plugin.py` finds wrong names and types."""

    __slots__ = ()

    def get(self, name: str) -> Value:
        raise NotImplementedError

    def int(self, name: str) -> int:
        value = self.get(name)
        assert type(value) is int, name
        return value

    def float(self, name: str) -> float:
        value = self.get(name)
        assert isinstance(value, float), name
        return value

    def boolean(self, name: str) -> bool:
        value = self.get(name)
        assert isinstance(value, bool), name
        return value

    def string(self, name: str) -> str:
        value = self.get(name)
        assert isinstance(value, str), name
        return value

    def optional_string(self, name: str) -> str | None:
        """An empty text counts as not set, as in Kafka's shipped files."""
        value = self.get(name)
        assert value is None or isinstance(value, str), name
        return value or None

    def list(self, name: str) -> tuple[str, ...]:
        value = self.get(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()
