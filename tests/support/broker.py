"""The broker of `millstream.testing` as a node runs outside of tests: nothing watches requests,
so those that repeat take their short way."""

from typing import Any

from millstream.testing import Broker as WatchedBroker


class Broker(WatchedBroker):
    def __init__(self, **options: Any) -> None:
        super().__init__(watches_requests=False, storage="disk", **options)
