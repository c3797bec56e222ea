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

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.broker import Broker
    from millstream.testing.cluster import Cluster
    from millstream.testing.faults import Faults
    from millstream.testing.process_cluster import ProcessCluster

__all__ = ["Broker", "Cluster", "Faults", "ProcessCluster"]

_MODULES = {
    "Broker": "broker",
    "Cluster": "cluster",
    "Faults": "faults",
    "ProcessCluster": "process_cluster",
}


def __getattr__(name: str) -> object:
    # Pytest imports this package in every run where Millstream is installed; the broker
    # itself is loaded only when a test uses it.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name)
