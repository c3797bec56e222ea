"""What members of a share group have acquired, as a test sees it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.broker.broker import Broker as Node
from millstream.coordinators.share.partition import SharePartition
from millstream.coordinators.share.peeking import in_flight_ranges
from millstream.coordinators.share.state_batches import ACQUIRED, ARCHIVING, AVAILABLE, DELAYED


@dataclass(frozen=True, slots=True)
class InFlight:
    """Records from `first` to `last` that share one fate; `deliveries` is how often they were
    delivered. `member_id` has them now. `state` is acquired; available: they are to be delivered
    again; delayed: they are not due yet; dying: their dead letters have to be written."""

    topic: str
    partition: int
    first: int
    last: int
    deliveries: int
    member_id: str | None
    state: str


_STATES: Final = {
    ACQUIRED: "acquired",
    AVAILABLE: "available",
    DELAYED: "delayed",
    ARCHIVING: "dying",
}


async def in_flight(node: Node, group_id: str) -> list[InFlight]:
    """In the loop of the node. Finished records are left out."""
    if not node.coordination.has_sharing:
        return []
    return [
        row
        for led in node.coordination.sharing.partitions.all()
        if led.key.group_id == group_id and led.share is not None
        for row in _rows(led.partition.topic_partition.topic, led.key.partition, led.share)
    ]


def _rows(topic: str, partition: int, share: SharePartition) -> Iterator[InFlight]:
    for one in in_flight_ranges(share):
        yield InFlight(
            topic,
            partition,
            one.first,
            one.last,
            deliveries=one.delivery_count,
            member_id=one.member_id or None,
            state=_STATES[one.state],
        )
