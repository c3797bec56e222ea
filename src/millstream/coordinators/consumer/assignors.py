"""The assignors of the consumer protocol: they compute the target assignment. Pure.

Both take the members, with the topics they read and their previous target, and give every
partition of every subscribed topic to exactly one member.

`uniform` spreads partitions evenly and moves as few as possible. `range` gives each member
a contiguous range of each topic's partitions, and the same range of topics with the same
number of partitions, so that joins on the partition find both sides on one member.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final
from uuid import UUID

from millstream.coordinators.codecs.changes import Assignment
from millstream.coordinators.consumer.group import sorted_assignment
from millstream.lazy_dataclass import dataclass


@dataclass(slots=True)
class AssignedMember:
    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    # Its target in the previous epoch.
    previous: Assignment = field(default_factory=dict)


# Partition counts by topic id.
Topics = Mapping[UUID, int]
Assignor = Callable[[Sequence[AssignedMember], Topics], dict[str, Assignment]]
_Partition = tuple[UUID, int]


def assign_uniform(members: Sequence[AssignedMember], topics: Topics) -> dict[str, Assignment]:
    ordered = sorted(members, key=lambda member: member.member_id)
    loads: dict[str, set[_Partition]] = {member.member_id: set() for member in ordered}
    if not ordered:
        return {}
    readers = {
        topic_id: [m.member_id for m in ordered if topic_id in m.topic_ids] for topic_id in topics
    }
    readers = {topic_id: found for topic_id, found in readers.items() if found}
    free = _keep_previous(ordered, topics, readers, loads)
    for topic_id, partition in free:
        least = min(readers[topic_id], key=lambda member_id: len(loads[member_id]))
        loads[least].add((topic_id, partition))
    _even_out(readers, loads)
    return {member_id: _by_topic(load) for member_id, load in loads.items()}


def _keep_previous(
    members: Sequence[AssignedMember],
    topics: Topics,
    readers: Mapping[UUID, Sequence[str]],
    loads: dict[str, set[_Partition]],
) -> list[_Partition]:
    """Let members keep what they had, up to an even share; return the remaining partitions."""
    total = sum(topics[topic_id] for topic_id in readers)
    share, larger_shares = divmod(total, len(members))
    taken: set[_Partition] = set()
    for member in members:
        mine = loads[member.member_id]
        for topic_id in sorted(member.previous):
            for partition in member.previous[topic_id]:
                is_mine = topic_id in readers and topic_id in member.topic_ids
                if not is_mine or partition >= topics[topic_id]:
                    continue
                one = (topic_id, partition)
                if one in taken:
                    continue
                if len(mine) >= share:
                    # Some members get one more than the others, while there are any left.
                    if len(mine) > share or larger_shares == 0:
                        continue
                    larger_shares -= 1
                mine.add(one)
                taken.add(one)
    return [
        (topic_id, partition)
        for topic_id in sorted(readers)
        for partition in range(topics[topic_id])
        if (topic_id, partition) not in taken
    ]


def _even_out(readers: Mapping[UUID, Sequence[str]], loads: dict[str, set[_Partition]]) -> None:
    """If members read different topics, move partitions from loaded members to idle ones.

    Every move makes the loads more even, so it terminates; the bound is only for the reader.
    """
    if len({tuple(found) for found in readers.values()}) <= 1:
        return
    for _ in range(sum(len(load) for load in loads.values())):
        if not _move_one(readers, loads):
            return


def _move_one(readers: Mapping[UUID, Sequence[str]], loads: dict[str, set[_Partition]]) -> bool:
    for giver in sorted(loads, key=lambda member_id: (-len(loads[member_id]), member_id)):
        for topic_id, partition in sorted(loads[giver]):
            taker = min(readers[topic_id], key=lambda member_id: len(loads[member_id]))
            if len(loads[giver]) - len(loads[taker]) > 1:
                loads[giver].remove((topic_id, partition))
                loads[taker].add((topic_id, partition))
                return True
    return False


def assign_range(members: Sequence[AssignedMember], topics: Topics) -> dict[str, Assignment]:
    # Static members first, by instance: they get the same range again after a restart.
    ordered = sorted(
        members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id)
    )
    loads: dict[str, set[_Partition]] = {member.member_id: set() for member in ordered}
    for topic_id, count in topics.items():
        readers = [member for member in ordered if topic_id in member.topic_ids]
        if not readers:
            continue
        share, larger_shares = divmod(count, len(readers))
        start = 0
        for number, member in enumerate(readers):
            end = start + share + (1 if number < larger_shares else 0)
            loads[member.member_id].update((topic_id, p) for p in range(start, end))
            start = end
    return {member_id: _by_topic(load) for member_id, load in loads.items()}


def _by_topic(load: set[_Partition]) -> Assignment:
    partitions: dict[UUID, list[int]] = {}
    for topic_id, partition in load:
        partitions.setdefault(topic_id, []).append(partition)
    return sorted_assignment(partitions)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
