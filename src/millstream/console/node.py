"""The node in this process, for what no protocol says."""

from dataclasses import dataclass
from typing import Final

from millstream.broker.broker import Broker

_CLIENTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Client:
    """One connection."""

    peer: str
    listener: str
    client_id: str
    software: str
    principal: str
    idle_seconds: float


class LocalNode:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @property
    def node_id(self) -> int:
        return self.broker.node.node_id

    def is_ready(self) -> bool:
        return not any(
            partition.offline_reason is not None for partition in self.broker.node.partitions
        )

    def clients(self) -> list[Client]:
        now = self.broker.node.clock.monotonic()
        found = [
            Client(
                one.peer,
                one.listener,
                one.client_id or "",
                one.client_software or "",
                str(one.principal),
                max(now - one.received_at, 0.0),
            )
            for one in list(self.broker.connections)[:_CLIENTS_MAX]
        ]
        return sorted(found, key=lambda one: (one.client_id, one.peer))

    def counters(self) -> dict[str, int]:
        """Counters whose rates are charted."""
        counts = self.broker.services.counts
        return {"node.requests": sum(counts.values())}
