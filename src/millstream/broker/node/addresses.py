"""The listeners of a node, and the addresses that it gives to the clients of each."""

from collections.abc import Callable, Mapping, Sequence

from millstream.config import BrokerConfig, Listener, inter_broker_listener


class Addresses:
    def __init__(
        self,
        listeners: Sequence[Listener],
        config: BrokerConfig,
        bound_ports: Callable[[], Mapping[str, int]],
    ) -> None:
        """`bound_ports` are known once the listeners are bound: port 0 picks a free one."""
        self._listeners = {listener.name: listener for listener in listeners}
        self._bound_ports = bound_ports
        self.between_nodes = inter_broker_listener(config, list(listeners))

    @property
    def inter_broker_listener(self) -> str:
        return self.between_nodes.name

    def advertised(self, listener: str) -> tuple[str, int]:
        """The host and port for clients of a listener."""
        found = self._listeners[listener]
        return found.advertised_host, found.advertised_port or self._bound_ports()[listener]

    @property
    def protocols(self) -> dict[str, str]:
        return {name: listener.protocol for name, listener in self._listeners.items()}
