"""What members of a share group have acquired, as a test sees it."""

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.broker.broker import Broker as Node
from millstream.coordinators.share.in_flight import Delivery, InFlightBatch
from millstream.coordinators.share.partition import SharePartition
from millstream.coordinators.share.state_batches import ACQUIRED, AVAILABLE


@dataclass(frozen=True, slots=True)
class InFlight:
    """Records from `first` to `last` that share one fate; `deliveries` is how often they were
    delivered. `member_id` has them now; None: they are to be delivered again."""

    topic: str
    partition: int
    first: int
    last: int
    deliveries: int
    member_id: str | None


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
    row: InFlight | None = None
    for offset, one in _records(share):
        member_id = one.member_id or None
        if one.state not in (ACQUIRED, AVAILABLE):
            continue
        found = InFlight(topic, partition, offset, offset, one.count, member_id)
        if row is not None and _is_next(row, found):
            row = InFlight(topic, partition, row.first, offset, one.count, member_id)
            continue
        if row is not None:
            yield row
        row = found
    if row is not None:
        yield row


def _is_next(row: InFlight, found: InFlight) -> bool:
    same = (row.deliveries, row.member_id) == (found.deliveries, found.member_id)
    return same and row.last + 1 == found.first


def _records(share: SharePartition) -> Iterator[tuple[int, Delivery]]:
    for batch in share.in_flight.batches:
        first = max(batch.first, share.start_offset)
        for offset in range(first, batch.last + 1):
            yield offset, _of(batch, offset)


def _of(batch: InFlightBatch, offset: int) -> Delivery:
    if batch.whole is not None:
        return batch.whole
    assert batch.each is not None
    return batch.each[offset - batch.first]
