"""What a share partition has in flight, for people and for tests."""

from collections.abc import Iterator
from typing import NamedTuple

from millstream.coordinators.share.in_flight import Delivery
from millstream.coordinators.share.partition import SharePartition
from millstream.coordinators.share.state_batches import FINISHED


class InFlightRange(NamedTuple):
    """Neighbours in the same state; both offsets are included. `until_ms` is when the first of
    their locks or delays ends, 0 without one."""

    first: int
    last: int
    state: int
    delivery_count: int
    member_id: str
    until_ms: int


def in_flight_ranges(share: SharePartition) -> Iterator[InFlightRange]:
    """Without finished records."""
    before: InFlightRange | None = None
    for first, last, one in _deliveries(share):
        if one.state in FINISHED:
            continue
        found = InFlightRange(first, last, one.state, one.count, one.member_id, one.lock_until_ms)
        if before is not None and before.last + 1 == first and before[2:5] == found[2:5]:
            before = before._replace(last=last, until_ms=min(before.until_ms, found.until_ms))
            continue
        if before is not None:
            yield before
        before = found
    if before is not None:
        yield before


def _deliveries(share: SharePartition) -> Iterator[tuple[int, int, Delivery]]:
    for batch in share.in_flight.batches:
        if batch.whole is not None:
            yield max(batch.first, share.start_offset), batch.last, batch.whole
            continue
        for offset, one in batch.deliveries(share.start_offset, batch.last):
            yield offset, offset, one
