"""The simple assignor of share groups: every partition gets about the same number of members,
every member about the same number of partitions, and as few as possible move. Pure.

Several members may get one partition: that is the point of a share group. With more
partitions than members, each partition has one.
"""

from collections.abc import Mapping, Sequence
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
        _share(ordered, _all_of(partitions, ordered[0].topic_ids), loads)
    else:
        # If they read different topics, each topic is shared by those who read it.
        for topic_id in sorted(partitions):
            readers = [member for member in ordered if topic_id in member.topic_ids]
            if readers:
                _share(readers, _all_of(partitions, frozenset({topic_id})), loads)
    return {member_id: _by_topic(load) for member_id, load in loads.items()}


def _all_of(
    partitions: Mapping[UUID, Sequence[int]], topic_ids: frozenset[UUID]
) -> list[_Partition]:
    wanted = sorted(topic_ids.intersection(partitions))
    return [(topic_id, number) for topic_id in wanted for number in sorted(partitions[topic_id])]


def _share(
    members: Sequence[SharingMember],
    partitions: Sequence[_Partition],
    loads: dict[str, set[_Partition]],
) -> None:
    """Give each member its share of partitions, on top of what it has of other topics."""
    if not partitions:
        return
    # So many members per partition; the places are divided evenly among the members.
    sharing = -(-len(members) // len(partitions))
    places = dict.fromkeys(partitions, sharing)
    total = sharing * len(partitions)
    missing: dict[str, int] = {}
    for number, member in enumerate(members):
        share = _up(total * (number + 1), len(members)) - _up(total * number, len(members))
        kept = [one for one in _had(member) if places.get(one, 0) > 0][:share]
        for one in kept:
            places[one] -= 1
        loads[member.member_id].update(kept)
        missing[member.member_id] = share - len(kept)
    for member_id, count in missing.items():
        free = [one for one in partitions if places[one] > 0 and one not in loads[member_id]]
        # Those with most places first: no partition stays without a member.
        free.sort(key=lambda one: -places[one])
        for one in free[:count]:
            places[one] -= 1
            loads[member_id].add(one)


def _up(amount: int, parts: int) -> int:
    return -(-amount // parts)


def _had(member: SharingMember) -> list[_Partition]:
    return [(topic_id, n) for topic_id, numbers in member.previous.items() for n in numbers]


def _by_topic(load: set[_Partition]) -> Assignment:
    partitions: dict[UUID, list[int]] = {}
    for topic_id, number in load:
        partitions.setdefault(topic_id, []).append(number)
    return sorted_assignment(partitions)
