"""Nodes that left the image a moment ago, and are still reported to clients.

A client drops the nodes that a response does not list, and librdkafka does not recover when
they come back at once: a producer that had lost all of them, or the leader of its
partitions, stayed silent for as long as it was observed. Nodes leave for a moment whenever
their sessions end together, for example after a ZooKeeper outage: each reads which nodes are
alive before the others have registered again. And clients should learn that a node died only
after its leaderships have moved.

Leaders never come from here: a node that has left leads nothing.
"""

from typing import Final

from millstream.clock import Clock
from millstream.cluster.observer import ImageChange
from millstream.cluster.state import BrokerState, ClusterImage

SHOWN_SECONDS: Final = 10.0


class Departed:
    """Outlives the session, as the image does."""

    def __init__(self, image: ClusterImage, clock: Clock) -> None:
        self._image = image
        self._clock = clock
        # Every node as it was last seen, and when it left.
        self._last: dict[int, BrokerState] = {}
        self._left_at: dict[int, float] = {}

    def image_changed(self, change: ImageChange) -> None:
        for broker_id in change.brokers:
            broker = self._image.brokers.get(broker_id)
            if broker is not None:
                self._last[broker_id] = broker
            elif broker_id in self._last:
                self._left_at[broker_id] = self._clock.monotonic()

    def nodes(self) -> list[BrokerState]:
        after = self._clock.monotonic() - SHOWN_SECONDS
        return [
            self._last[broker_id]
            for broker_id, left_at in self._left_at.items()
            if left_at > after and broker_id not in self._image.brokers
        ]
