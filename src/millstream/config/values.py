"""Values in force: typed getters over them, and what DescribeConfigs tells of one."""

from dataclasses import dataclass
from enum import IntEnum

from millstream.config.option import Option, Value


class Source(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs answers it."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


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


class TypedValues:
    """Ask with the getter of the option's type; another type is a mistake of ours."""

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
