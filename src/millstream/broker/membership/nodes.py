"""The other nodes of the cluster, as the image has them."""

from collections.abc import Callable, Mapping

from millstream.cluster.state import NO_BROKER_EPOCH, BrokerState, ClusterImage

Address = tuple[str, int]


class Nodes:
    def __init__(self, image: Callable[[], ClusterImage], listener: Callable[[], str]) -> None:
        """`listener` names the inter-broker listener."""
        self._image = image
        self._listener = listener

    def address(self, broker_id: int) -> Address | None:
        """The address of a node; None while it is unknown."""
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else self.address_of(broker)

    def address_of(self, broker: BrokerState) -> Address | None:
        """Of a node that the image may no longer have."""
        if not broker.endpoints:
            return None
        endpoint = broker.endpoint(self._listener()) or broker.endpoints[0]
        return endpoint.host, endpoint.port

    def alive(self) -> Mapping[int, int]:
        """The broker epochs of the nodes that may be in sync."""
        return {
            broker.id: broker.epoch
            for broker in self._image().brokers.values()
            if broker.epoch != NO_BROKER_EPOCH and not broker.is_stopping
        }
