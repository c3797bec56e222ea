"""Millstream inside a test: a broker without Docker and without another process.

    from millstream.testing import Broker

    with Broker(topics={"orders": 3}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

For pytest, the plugin in `millstream.testing.plugin` gives fixtures on top of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    # Pytest imports this package in every run where Millstream is installed; the broker
    # itself is loaded only where a test asks for it.
    if name == "Broker":
        from millstream.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
