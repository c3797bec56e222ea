"""Typed getters over values that were checked when they were set."""

from millstream.config.option import Value


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
