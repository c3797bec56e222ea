"""A share group as a queue: what is in flight, waits, is retried, delayed or dying.

Apache Kafka has no request for it; there, only the start is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model import TopicPartition
from millstream.wire.apis.peek_share_group import (
    PeekedPartition,
    PeekedPartitionStart,
    PeekedRange,
    PeekedTopic,
    PeekShareGroupRequest,
)

AVAILABLE, ACQUIRED, ARCHIVING, DELAYED = 0, 1, 3, 16
_NAMES: Final = {
    AVAILABLE: "waiting",
    ACQUIRED: "in flight",
    ARCHIVING: "dying",
    DELAYED: "delayed",
}


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """What the group's coordinator says of a partition. None: the group has not begun to read it,
    or its leader does not answer."""

    start: int | None
    # Records that are not finished. Some behind the start may be.
    lag: int | None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Neighbours in one state. `left_ms` is what is left of their lock, or of their delay."""

    first: int
    last: int
    state: str
    deliveries: int
    member_id: str | None
    left_ms: int | None


@dataclass(frozen=True, slots=True)
class QueuePartition:
    """Records before `start` are finished, those from `next` on were never delivered. None: it is
    not known, because the cluster has no request for it."""

    where: TopicPartition
    start: int | None
    next: int | None
    end: int | None
    in_flight: int | None
    # Given back, or with their lock over: they are delivered again.
    retried: int | None
    # Never delivered.
    waiting: int | None
    delayed: int | None
    # Their dead letters have to be written.
    dying: int | None
    # The time of the first record that is not finished.
    oldest_ms: int | None
    ranges: Sequence[QueueRange]


def peek_request(
    group_id: str, positions: Mapping[TopicPartition, StoredPosition]
) -> PeekShareGroupRequest:
    topics: dict[str, list[PeekedPartitionStart]] = {}
    for where, stored in positions.items():
        row = PeekedPartitionStart(
            partition=where.partition, start_offset=-1 if stored.start is None else stored.start
        )
        topics.setdefault(where.topic, []).append(row)
    return PeekShareGroupRequest(
        group_id=group_id,
        topics=[PeekedTopic(topic=name, partitions=rows) for name, rows in topics.items()],
    )


def queue_partition(row: PeekedPartition, stored: StoredPosition) -> QueuePartition:
    """What the leader of a partition says. While nobody fetches, it does not know which records
    behind the start are finished: then the stored lag counts."""
    sizes = dict.fromkeys(_NAMES, 0)
    retried = 0
    for one in row.ranges:
        size = one.last_offset - one.first_offset + 1
        if one.state == AVAILABLE and one.delivery_count:
            retried += size
        elif one.state in sizes:
            sizes[one.state] += size
    begins = row.start_offset if row.is_fetched or stored.start is not None else None
    new = 0 if begins is None else max(row.end_offset - row.next_offset, 0)
    if not row.is_fetched and stored.lag is not None:
        new = min(new, stored.lag)
    has_oldest = row.oldest_ms >= 0 and begins is not None and (row.is_fetched or new > 0)
    return QueuePartition(
        TopicPartition(row.topic, row.partition),
        start=begins,
        next=row.next_offset if begins is not None else None,
        end=row.end_offset,
        in_flight=sizes[ACQUIRED],
        retried=retried,
        waiting=sizes[AVAILABLE] + new,
        delayed=sizes[DELAYED],
        dying=sizes[ARCHIVING],
        oldest_ms=row.oldest_ms if has_oldest else None,
        ranges=[_range(one) for one in row.ranges],
    )


def _range(one: PeekedRange) -> QueueRange:
    is_retried = one.state == AVAILABLE and one.delivery_count > 0
    return QueueRange(
        one.first_offset,
        one.last_offset,
        "retried" if is_retried else _NAMES.get(one.state, f"state {one.state}"),
        one.delivery_count,
        one.member_id,
        one.left_ms if one.state in (ACQUIRED, DELAYED) else None,
    )


def unknown_partition(where: TopicPartition, start: int | None) -> QueuePartition:
    """Of a cluster without the request, or a partition without a leader."""
    return QueuePartition(where, start, None, None, None, None, None, None, None, None, ranges=())


def total(numbers: Iterable[int | None]) -> int | None:
    """None if none of them is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
