"""The simple assignor of share groups: every partition gets about the same number of members,
every member about the same number of partitions, and as few as possible move. Pure.

Several members may get one partition: that is the point of a share group. With more
partitions than members, each partition has one.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Final
from uuid import UUID

from millstream.coordinators.codecs.changes import Assignment
from millstream.coordinators.consumer.group import sorted_assignment
from millstream.lazy_dataclass import dataclass

# Partitions by topic.
_Load = dict[UUID, list[int]]
# As topic ids compare, which is slow.
_IN_ORDER: Final = attrgetter("int")


@dataclass(slots=True)
class SharingMember:
    member_id: str
    topic_ids: frozenset[UUID]
    # Its target in the previous epoch.
    previous: Assignment = field(default_factory=dict)


def assign_simple(
    members: Sequence[SharingMember], partitions: Mapping[UUID, Sequence[int]]
) -> dict[str, Assignment]:
    """`partitions` are those that may be assigned, by topic."""
    ordered = sorted(members, key=lambda member: member.member_id)
    loads: dict[str, _Load] = {member.member_id: {} for member in ordered}
    # Members mostly read the same topics: look at a subscription once.
    read = {topic_ids: topic_ids.intersection(partitions) for topic_ids in _different(ordered)}
    if len(set(read.values())) == 1:
        _share(ordered, partitions, read[ordered[0].topic_ids], loads)
        return {member_id: sorted_assignment(load) for member_id, load in loads.items()}
    # If they read different topics, each topic is shared by those who read it.
    readers: dict[UUID, list[SharingMember]] = {}
    for member in ordered:
        for topic_id in read[member.topic_ids]:
            readers.setdefault(topic_id, []).append(member)
    for topic_id, members_of_it in readers.items():
        _share(members_of_it, partitions, (topic_id,), loads)
    return {member_id: sorted_assignment(load) for member_id, load in loads.items()}


def _different(members: Iterable[SharingMember]) -> set[frozenset[UUID]]:
    return {member.topic_ids for member in members}


def _share(
    members: Sequence[SharingMember],
    numbers: Mapping[UUID, Sequence[int]],
    topics: Iterable[UUID],
    loads: dict[str, _Load],
) -> None:
    """Give each member its share of these topics, on top of what it has of others."""
    topic_ids = sorted(topics, key=_IN_ORDER)
    partitions = [(topic_id, n) for topic_id in topic_ids for n in sorted(numbers[topic_id])]
    if not partitions:
        return
    if len(partitions) == 1:
        # All share it.
        [(topic_id, n)] = partitions
        for member in members:
            loads[member.member_id][topic_id] = [n]
        return
    # So many members per partition; the places are divided evenly among the members.
    sharing = -(-len(members) // len(partitions))
    # Below, a partition is its position in `partitions`.
    places = [sharing] * len(partitions)
    positions: dict[UUID, dict[int, int]] = {topic_id: {} for topic_id in topic_ids}
    for position, (topic_id, n) in enumerate(partitions):
        positions[topic_id][n] = position
    total = sharing * len(partitions)
    shares: list[set[int]] = []
    missing: list[int] = []
    start = 0
    for number, member in enumerate(members):
        end = _up(total * (number + 1), len(members))
        kept = [one for one in _had(member, positions) if places[one] > 0][: end - start]
        for one in kept:
            places[one] -= 1
        shares.append(set(kept))
        missing.append(end - start - len(kept))
        start = end
    # Those with most places first: no partition stays without a member.
    free = [(-left, one) for one, left in enumerate(places) if left > 0]
    heapq.heapify(free)
    for member, share, count in zip(members, shares, missing, strict=True):
        _fill(share, count, free)
        load = loads[member.member_id]
        for one in share:
            topic_id, n = partitions[one]
            load.setdefault(topic_id, []).append(n)


def _fill(share: set[int], count: int, free: list[tuple[int, int]]) -> None:
    """Add up to `count` partitions from the heap, each at most once."""
    again = []
    while count > 0 and free:
        places, one = heapq.heappop(free)
        if one not in share:
            share.add(one)
            count -= 1
            places += 1
        if places < 0:
            again.append((places, one))
    for entry in again:
        heapq.heappush(free, entry)


def _up(amount: int, parts: int) -> int:
    return -(-amount // parts)


def _had(member: SharingMember, positions: Mapping[UUID, Mapping[int, int]]) -> list[int]:
    """In the order of topics."""
    return [
        position
        for topic_id, of_topic in positions.items()
        for n in member.previous.get(topic_id, ())
        if (position := of_topic.get(n)) is not None
    ]
