"""The simple assignor of share groups: every partition gets about the same number of members,
every member about the same number of partitions, and as few as possible move. Pure.

Several members may get one partition: that is the point of a share group. With more
partitions than members, each partition has one.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from uuid import UUID

from millstream.coordinators.codecs.changes import Assignment
from millstream.coordinators.consumer.group import sorted_assignment
from millstream.lazy_dataclass import dataclass

_Partition = tuple[UUID, int]


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
    loads: dict[str, set[_Partition]] = {member.member_id: set() for member in ordered}
    if len({member.topic_ids.intersection(partitions) for member in ordered}) == 1:
        _share(ordered, partitions, ordered[0].topic_ids.intersection(partitions), loads)
    else:
        # If they read different topics, each topic is shared by those who read it.
        for topic_id in sorted(partitions):
            readers = [member for member in ordered if topic_id in member.topic_ids]
            if readers:
                _share(readers, partitions, (topic_id,), loads)
    return {member_id: _by_topic(load) for member_id, load in loads.items()}


def _share(
    members: Sequence[SharingMember],
    numbers: Mapping[UUID, Sequence[int]],
    topics: Iterable[UUID],
    loads: dict[str, set[_Partition]],
) -> None:
    """Give each member its share of these topics, on top of what it has of others."""
    topic_ids = sorted(topics)
    partitions = [(topic_id, n) for topic_id in topic_ids for n in sorted(numbers[topic_id])]
    if not partitions:
        return
    # So many members per partition; the places are divided evenly among the members.
    sharing = -(-len(members) // len(partitions))
    places = dict.fromkeys(partitions, sharing)
    total = sharing * len(partitions)
    missing: dict[str, int] = {}
    for number, member in enumerate(members):
        share = _up(total * (number + 1), len(members)) - _up(total * number, len(members))
        kept = [one for one in _had(member, topic_ids) if places.get(one, 0) > 0][:share]
        for one in kept:
            places[one] -= 1
        loads[member.member_id].update(kept)
        missing[member.member_id] = share - len(kept)
    # Those with most places first: no partition stays without a member.
    free = [(-places[one], number) for number, one in enumerate(partitions) if places[one] > 0]
    heapq.heapify(free)
    for member_id, count in missing.items():
        _fill(loads[member_id], count, partitions, free)


def _fill(
    load: set[_Partition],
    count: int,
    partitions: Sequence[_Partition],
    free: list[tuple[int, int]],
) -> None:
    """Add up to `count` partitions from the heap, each at most once."""
    again = []
    while count > 0 and free:
        places, number = heapq.heappop(free)
        if partitions[number] not in load:
            load.add(partitions[number])
            count -= 1
            places += 1
        if places < 0:
            again.append((places, number))
    for entry in again:
        heapq.heappush(free, entry)


def _up(amount: int, parts: int) -> int:
    return -(-amount // parts)


def _had(member: SharingMember, topic_ids: Iterable[UUID]) -> list[_Partition]:
    return [(topic_id, n) for topic_id in topic_ids for n in member.previous.get(topic_id, ())]


def _by_topic(load: set[_Partition]) -> Assignment:
    partitions: dict[UUID, list[int]] = {}
    for topic_id, number in load:
        partitions.setdefault(topic_id, []).append(number)
    return sorted_assignment(partitions)
