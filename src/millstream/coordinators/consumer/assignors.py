"""The assignors of the consumer protocol: they compute the target assignment. Pure.

Both take the members, with the topics they read and their previous target, and give every
partition of every subscribed topic to exactly one member.

`uniform` spreads partitions evenly and moves as few as possible. `range` gives each member
a contiguous range of each topic's partitions, and the same range of topics with the same
number of partitions, so that joins on the partition find both sides on one member.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field
from itertools import islice
from operator import attrgetter
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

# As ids compare, but in C.
_IN_ORDER: Final = attrgetter("int")
# Evening out looks at this many loads, and at each at least once: clients choose who reads what.
_LOADS_SEEN_MAX: Final = 200_000


@dataclass(slots=True)
class _Load:
    """What a member gets."""

    partitions: dict[UUID, set[int]] = field(default_factory=dict)
    size: int = 0

    def add(self, topic_id: UUID, partition: int) -> None:
        self.partitions.setdefault(topic_id, set()).add(partition)
        self.size += 1

    def take(self, topic_ids: Iterable[UUID], count: int) -> list[tuple[UUID, int]]:
        """Remove the first partitions of these topics."""
        found: list[tuple[UUID, int]] = []
        for topic_id in topic_ids:
            mine = self.partitions.get(topic_id, set())
            first = sorted(mine)[: count - len(found)]
            mine.difference_update(first)
            found += ((topic_id, partition) for partition in first)
            if len(found) == count:
                break
        self.size -= len(found)
        return found


@dataclass(slots=True)
class _Audience:
    """Topics with the same readers. Members are numbered in the order of the assignor."""

    topic_ids: list[UUID]
    # How many partitions of these topics each reader has; while they are evened out, should have.
    held: dict[int, int]


def assign_uniform(members: Sequence[AssignedMember], topics: Topics) -> dict[str, Assignment]:
    ordered = sorted(members, key=lambda member: member.member_id)
    if not ordered:
        return {}
    loads = [_Load() for _ in ordered]
    audiences = _audiences(ordered, topics)
    by_topic = {topic_id: each for each in audiences for topic_id in each.topic_ids}
    taken = _keep_previous(ordered, topics, by_topic.keys(), loads)
    _give_the_rest(topics, by_topic, taken, loads)
    if len(audiences) > 1:
        _even_out(audiences, by_topic, loads)
    return {
        member.member_id: sorted_assignment(load.partitions)
        for member, load in zip(ordered, loads, strict=True)
    }


def _audiences(members: Sequence[AssignedMember], topics: Topics) -> list[_Audience]:
    """Of all topics that are read. Most members read the same: look at a subscription once."""
    subscribers: dict[frozenset[UUID], list[int]] = {}
    for number, member in enumerate(members):
        subscribers.setdefault(member.topic_ids, []).append(number)
    groups = list(subscribers.values())
    naming: dict[UUID, list[int]] = {}
    for group, topic_ids in enumerate(subscribers):
        for topic_id in topic_ids:
            if topic_id in topics:
                naming.setdefault(topic_id, []).append(group)
    found: dict[tuple[int, ...], _Audience] = {}
    for topic_id in sorted(naming, key=_IN_ORDER):
        key = tuple(naming[topic_id])
        if key not in found:
            readers = sorted(number for group in key for number in groups[group])
            found[key] = _Audience([], dict.fromkeys(readers, 0))
        found[key].topic_ids.append(topic_id)
    return list(found.values())


def _keep_previous(
    members: Sequence[AssignedMember],
    topics: Topics,
    read: Set[UUID],
    loads: Sequence[_Load],
) -> dict[UUID, set[int]]:
    """Let members keep what they had, up to an even share; return what is taken now."""
    share, larger_shares = divmod(sum(topics[topic_id] for topic_id in read), len(members))
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in read}
    for member, load in zip(members, loads, strict=True):
        for topic_id in sorted(member.previous, key=_IN_ORDER):
            if topic_id not in read or topic_id not in member.topic_ids:
                continue
            already, count = taken[topic_id], topics[topic_id]
            for partition in member.previous[topic_id]:
                if partition >= count or partition in already:
                    continue
                if load.size >= share:
                    # Some members get one more than the others, while there are any left.
                    if load.size > share or larger_shares == 0:
                        continue
                    larger_shares -= 1
                load.add(topic_id, partition)
                already.add(partition)
    return taken


def _give_the_rest(
    topics: Topics,
    by_topic: Mapping[UUID, _Audience],
    taken: Mapping[UUID, Set[int]],
    loads: Sequence[_Load],
) -> None:
    """Every other partition goes to its least loaded reader."""
    heap: list[tuple[int, int]] = []
    heap_of: _Audience | None = None
    for topic_id in sorted(by_topic, key=_IN_ORDER):
        left = [p for p in range(topics[topic_id]) if p not in taken[topic_id]]
        if left and by_topic[topic_id] is not heap_of:
            heap_of = by_topic[topic_id]
            heap = [(loads[number].size, number) for number in heap_of.held]
            heapq.heapify(heap)
        for partition in left:
            size, number = heap[0]
            loads[number].add(topic_id, partition)
            heapq.heapreplace(heap, (size + 1, number))


# -- members that read different topics --------------------------------------------------


def _even_out(
    audiences: Sequence[_Audience], by_topic: Mapping[UUID, _Audience], loads: Sequence[_Load]
) -> None:
    """Move partitions from loaded members to idle ones: first only count, then move each once."""
    sizes = [load.size for load in loads]
    for number, load in enumerate(loads):
        for topic_id, partitions in load.partitions.items():
            by_topic[topic_id].held[number] += len(partitions)
    before = [dict(each.held) for each in audiences]
    loads_seen, has_moved, order = 0, True, list(audiences)
    while has_moved and loads_seen < _LOADS_SEEN_MAX:
        has_moved = False
        for each in order:
            loads_seen += len(each.held)
            has_moved = _make_level(sizes, each.held) or has_moved
        # A chain of members that each share topics with the next settles faster to and fro.
        order.reverse()
    for each, had in zip(audiences, before, strict=True):
        _move(each, had, loads)


def _make_level(sizes: list[int], held: dict[int, int]) -> bool:
    """Move partitions among the readers of an audience, as one by one from the largest load to the
    smallest, until no move makes their loads more even. Returns whether any moved."""
    low = min(sizes[number] for number in held)
    high = max((sizes[number] for number, count in held.items() if count > 0), default=low)
    if high - low <= 1:
        return False

    def below(level: int) -> int:
        return sum(level - sizes[number] for number in held if sizes[number] < level)

    def above(level: int) -> int:
        over = ((count, sizes[number] - level) for number, count in held.items())
        return sum(min(count, excess) for count, excess in over if excess > 0)

    # The highest level to which those above it can lift everyone.
    level = low - 1 + bisect_right(range(low, high), 0, key=lambda at: below(at) - above(at))
    count = max(below(level), above(level + 1))
    left = _lower(sizes, held, level + 1, count)
    _lower(sizes, held, level, left)
    left = _lift(sizes, held, level, count)
    _lift(sizes, held, level + 1, left)
    return True


def _lower(sizes: list[int], held: dict[int, int], level: int, count: int) -> int:
    """Take up to `count` from those above the level; return what remains of the count."""
    for number in held:
        amount = min(sizes[number] - level, held[number], count)
        if amount > 0:
            sizes[number] -= amount
            held[number] -= amount
            count -= amount
    return count


def _lift(sizes: list[int], held: dict[int, int], level: int, count: int) -> int:
    """Give up to `count` to those below the level; return what remains of the count."""
    for number in held:
        amount = min(level - sizes[number], count)
        if amount > 0:
            sizes[number] += amount
            held[number] += amount
            count -= amount
    return count


def _move(audience: _Audience, before: Mapping[int, int], loads: Sequence[_Load]) -> None:
    pool: list[tuple[UUID, int]] = []
    for number, had in before.items():
        if had > audience.held[number]:
            pool += loads[number].take(audience.topic_ids, had - audience.held[number])
    moving = iter(pool)
    for number, had in before.items():
        for topic_id, partition in islice(moving, max(audience.held[number] - had, 0)):
            loads[number].add(topic_id, partition)


def assign_range(members: Sequence[AssignedMember], topics: Topics) -> dict[str, Assignment]:
    # Static members first, by instance: they get the same range again after a restart.
    ordered = sorted(
        members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id)
    )
    assigned: dict[str, dict[UUID, range]] = {member.member_id: {} for member in ordered}
    for audience in _audiences(ordered, topics):
        readers = [ordered[number].member_id for number in audience.held]
        for topic_id in audience.topic_ids:
            share, larger_shares = divmod(topics[topic_id], len(readers))
            start = 0
            # Where there are fewer partitions than readers, the others get nothing.
            for number, member_id in enumerate(readers[: topics[topic_id]]):
                end = start + share + (1 if number < larger_shares else 0)
                assigned[member_id][topic_id] = range(start, end)
                start = end
    return {member_id: sorted_assignment(found) for member_id, found in assigned.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
