"""Every partition has exactly one owner; shares are even; little moves."""

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.coordinators.codecs.changes import Assignment
from millstream.coordinators.consumer.assignors import (
    ASSIGNORS,
    AssignedMember,
    assign_range,
    assign_uniform,
)
from tests.coordinators.steps import steps
from tests.coordinators.world import topic_id

members_of_topics = some.lists(some.sets(some.integers(0, 4), min_size=1), min_size=1, max_size=12)
counts_of_topics = some.lists(some.integers(1, 20), min_size=5, max_size=5)


def members(subscriptions: list[set[int]]) -> list[AssignedMember]:
    return [
        AssignedMember(f"m{number:02}", None, frozenset(topic_id(each) for each in topics))
        for number, topics in enumerate(subscriptions)
    ]


def size(assignment: Assignment) -> int:
    return sum(len(partitions) for partitions in assignment.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=members_of_topics, counts=counts_of_topics)
def test_every_partition_that_is_read_has_one_owner_who_reads_it(
    name: str, subscriptions: list[set[int]], counts: list[int]
) -> None:
    topics = {topic_id(number): count for number, count in enumerate(counts)}
    everyone = members(subscriptions)
    assigned = ASSIGNORS[name](everyone, topics)
    owners: dict[tuple[UUID, int], str] = {}
    for member in everyone:
        for topic, partitions in assigned[member.member_id].items():
            assert topic in member.topic_ids
            for partition in partitions:
                assert (topic, partition) not in owners
                owners[topic, partition] = member.member_id
    read = set().union(*(member.topic_ids for member in everyone))
    assert len(owners) == sum(count for topic, count in topics.items() if topic in read)


@given(count=some.integers(1, 100), size_of_group=some.integers(1, 20), seed=some.integers())
def test_uniform_shares_differ_by_one_at_most_and_stay_where_they_are(
    count: int, size_of_group: int, seed: int
) -> None:
    topics = {topic_id(0): count}
    everyone = members([{0}] * size_of_group)
    first = assign_uniform(everyone, topics)
    sizes = [size(part) for part in first.values()]
    assert max(sizes) - min(sizes) <= 1
    for member in everyone:
        member.previous = first[member.member_id]
    random.Random(seed).shuffle(everyone)
    assert assign_uniform(everyone, topics) == first


def test_uniform_moves_only_what_a_new_member_needs() -> None:
    topics = {topic_id(0): 60}
    everyone = members([{0}] * 5)
    first = assign_uniform(everyone, topics)
    for member in everyone:
        member.previous = first[member.member_id]
    everyone.append(AssignedMember("new", None, frozenset({topic_id(0)})))
    second = assign_uniform(everyone, topics)
    assert size(second["new"]) == 10
    for member_id, before in first.items():
        assert set(second[member_id][topic_id(0)]) <= set(before[topic_id(0)])


def test_uniform_evens_out_members_that_read_different_topics() -> None:
    topics = {topic_id(0): 10, topic_id(1): 10}
    assigned = assign_uniform(members([{0}, {0, 1}, {1}]), topics)
    sizes = sorted(size(part) for part in assigned.values())
    assert sizes == [6, 7, 7]


def joined(previous: dict[str, Assignment], subscriptions: list[set[int]]) -> list[AssignedMember]:
    everyone = members(subscriptions)
    for member in everyone:
        member.previous = previous.get(member.member_id, {})
    return everyone


@given(before=members_of_topics, after=members_of_topics, counts=counts_of_topics)
def test_uniform_leaves_no_move_that_would_make_loads_more_even(
    before: list[set[int]], after: list[set[int]], counts: list[int]
) -> None:
    topics = {topic_id(number): count for number, count in enumerate(counts)}
    first = assign_uniform(members(before), topics)
    everyone = joined(first, after)
    assigned = assign_uniform(everyone, topics)
    sizes = {member_id: size(part) for member_id, part in assigned.items()}
    for member_id, part in assigned.items():
        for topic in part:
            readers = [each.member_id for each in everyone if topic in each.topic_ids]
            assert sizes[member_id] - min(sizes[each] for each in readers) <= 1


def test_uniform_moves_each_partition_once() -> None:
    def work(count: int) -> int:
        topics = {topic_id(0): count, topic_id(1): count}
        reader = assign_uniform(members([{0, 1}]), topics)["m00"]
        everyone = joined({"m00": reader}, [{0, 1}, {0}])
        done = steps(lambda: assign_uniform(everyone, topics))
        assert [size(part) for part in assign_uniform(everyone, topics).values()] == [count, count]
        return done

    assert work(800) < 5 * work(200)


def test_uniform_gives_partitions_without_asking_all_members_for_each() -> None:
    def work(size_of_group: int) -> int:
        everyone = members([{0}] * size_of_group)
        return steps(lambda: assign_uniform(everyone, {topic_id(0): 2000}))

    assert work(400) < 2 * work(100)


def test_range_gives_the_same_run_of_every_topic() -> None:
    topics = {topic_id(0): 5, topic_id(1): 5}
    assigned = assign_range(members([{0, 1}, {0, 1}]), topics)
    assert assigned["m00"] == {topic_id(0): (0, 1, 2), topic_id(1): (0, 1, 2)}
    assert assigned["m01"] == {topic_id(0): (3, 4), topic_id(1): (3, 4)}


def test_range_orders_static_members_by_their_instance() -> None:
    everyone = [
        AssignedMember("x", "b", frozenset({topic_id(0)})),
        AssignedMember("y", "a", frozenset({topic_id(0)})),
        AssignedMember("a", None, frozenset({topic_id(0)})),
    ]
    assigned = assign_range(everyone, {topic_id(0): 3})
    assert [assigned[name][topic_id(0)] for name in ("y", "x", "a")] == [(0,), (1,), (2,)]


def test_nobody_gets_nothing() -> None:
    assert assign_uniform([], {topic_id(0): 3}) == {}
    assert assign_range([], {topic_id(0): 3}) == {}
