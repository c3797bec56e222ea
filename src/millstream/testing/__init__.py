"""Millstream inside a test: a broker without Docker and without another process.

    from millstream.testing import Broker

    with Broker(topics={"orders": 3}) as broker:
        producer = Producer(broker.client_config("confluent"))
        ...
        assert [record.json() for record in broker.topic("orders").wait(2)] == [...]

`broker.clock` moves time, and `broker.faults` orders errors, delays and broken connections.
`Cluster` runs several brokers, kills them and cuts the network between them. For pytest, the plugin
in `millstream.testing.plugin` has fixtures built on both. May use the broker and its config;
nothing else in Millstream imports this package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.broker import Broker
    from millstream.testing.cluster import Cluster
    from millstream.testing.faults import Faults

__all__ = ["Broker", "Cluster", "Faults"]


def __getattr__(name: str) -> object:
    # Pytest imports this package in every run where Millstream is installed; the broker
    # itself is loaded only when a test uses it.
    if name == "Broker":
        from millstream.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from millstream.testing.cluster import Cluster

        return Cluster
    if name == "Faults":
        from millstream.testing.faults import Faults

        return Faults
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
