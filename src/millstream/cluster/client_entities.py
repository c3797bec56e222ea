"""Options of users, client ids and addresses: their quotas and SCRAM credentials.

The names of these options are Kafka's (`producer_byte_rate`, `SCRAM-SHA-256`). Their values may
be secrets: never log them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from millstream.lazy_dataclass import dataclass

# The entity that stands for all that have no options of their own. No entity has an empty name.
DEFAULT_NAME: Final = ""


@dataclass(frozen=True, slots=True)
class ClientEntity:
    """A user, a client id, both together, or an address. A part that is None does not count."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __post_init__(self) -> None:
        is_client = self.user is not None or self.client_id is not None
        assert is_client != (self.ip is not None), self

    def __str__(self) -> str:
        parts = (("user", self.user), ("client id", self.client_id), ("ip", self.ip))
        return ", ".join(
            f"{kind} {name!r}" if name else f"{kind} <default>"
            for kind, name in parts
            if name is not None
        )


OnEntitiesChanged = Callable[[frozenset[ClientEntity]], None]


class ClientEntities:
    """All entities that have options. `listeners` are called on the loop, after every change,
    with those that changed."""

    __slots__ = ("_options", "listeners")

    def __init__(self) -> None:
        self._options: dict[ClientEntity, Mapping[str, str]] = {}
        self.listeners: list[OnEntitiesChanged] = []

    @property
    def options(self) -> Mapping[ClientEntity, Mapping[str, str]]:
        return self._options

    def options_of(self, entity: ClientEntity) -> Mapping[str, str]:
        return self._options.get(entity, {})

    def put(self, entity: ClientEntity, options: Mapping[str, str]) -> None:
        """An entity without options is removed."""
        others = {one: its for one, its in self._options.items() if one != entity}
        self.replace({**others, entity: options})

    def replace(self, everything: Mapping[ClientEntity, Mapping[str, str]]) -> None:
        before = self._options
        self._options = {entity: options for entity, options in everything.items() if options}
        changed = frozenset(
            entity
            for entity in before.keys() | self._options.keys()
            if before.get(entity) != self._options.get(entity)
        )
        if changed:
            for listener in tuple(self.listeners):
                listener(changed)
