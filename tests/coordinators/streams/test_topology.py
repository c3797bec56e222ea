"""Internal topics, co-partitioned topics and tasks of a topology."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millstream.coordinators.codecs.streams_changes import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from millstream.coordinators.streams.topology import (
    ConfiguredTopology,
    StatusCode,
    check_topology,
    configure,
    is_same,
    named_topics,
)
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.steps import steps
from tests.coordinators.streams.streams_world import (
    CHANGELOG,
    REPARTITION,
    WORD_COUNT,
    all_topics,
    subtopology,
    word_count,
)
from tests.coordinators.world import image_of


def configured(topology: Topology, **topics: int) -> ConfiguredTopology:
    return configure(topology, image_of(**topics), 1)


def problem(topology: Topology, **topics: int) -> StatusCode | None:
    found = configured(topology, **topics).problem
    return None if found is None else found.code


def test_internal_topics_get_as_many_partitions_as_the_source() -> None:
    found = configured(WORD_COUNT, orders=3)
    assert [(topic.name, topic.partitions) for topic in found.missing] == [
        (CHANGELOG, 3),
        (REPARTITION, 3),
    ]
    assert found.missing[0].configs == (("cleanup.policy", "compact"),)
    assert found.problem is not None
    assert found.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert CHANGELOG in found.problem.detail


def test_with_all_topics_there_is_a_task_for_each_partition() -> None:
    found = configured(WORD_COUNT, **all_topics(3))
    assert found.problem is None
    assert found.missing == ()
    assert [(each.tasks, each.is_stateful) for each in found.subtopologies] == [
        (3, False),
        (3, True),
    ]


def test_a_repartition_topic_may_have_a_number_of_its_own() -> None:
    found = configured(word_count(5), orders=2)
    assert {topic.name: topic.partitions for topic in found.missing} == {
        REPARTITION: 5,
        CHANGELOG: 5,
    }
    assert [each.tasks for each in found.subtopologies] == [2, 5]


def test_missing_source_topics_are_named_and_nothing_is_created() -> None:
    found = configured(WORD_COUNT, payments=1)
    assert found.problem is not None
    assert found.problem.code is StatusCode.MISSING_SOURCE_TOPICS
    assert found.problem.detail == "Source topics orders are missing."
    assert found.missing == ()
    many = Topology(0, (subtopology(0, "a", "b", "c", "d", "e"),))
    detail = configured(many).problem
    assert detail is not None
    assert detail.detail == "Source topics a, b, c and 2 additional topics are missing."


def test_an_internal_topic_of_another_size_is_a_problem() -> None:
    topics = {**all_topics(2), CHANGELOG: 3}
    assert problem(WORD_COUNT, **topics) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def join_of(*own: str, repartition: dict[str, int] | None = None) -> Topology:
    """A join of topics and repartition topics, which must be co-partitioned."""
    inner = tuple(InternalTopic(name, count, 0) for name, count in (repartition or {}).items())
    group = CopartitionGroup(tuple(range(len(own))), (), tuple(range(len(inner))))
    joined = subtopology(1, *own, repartition_source_topics=inner, copartition_groups=(group,))
    writer = subtopology(0, "orders", repartition_sink_topics=tuple(repartition or ()))
    return Topology(0, (writer, joined))


def test_topics_that_are_joined_must_have_the_same_number_of_partitions() -> None:
    topology = join_of("orders", "payments")
    assert problem(topology, orders=2, payments=2) is None
    assert problem(topology, orders=2, payments=3) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_a_repartition_topic_follows_the_topic_it_is_joined_with() -> None:
    found = configured(join_of("payments", repartition={"r": 0}), orders=2, payments=7)
    assert [(topic.name, topic.partitions) for topic in found.missing] == [("r", 7)]


def test_a_fixed_repartition_topic_must_fit_the_topic_it_is_joined_with() -> None:
    topology = join_of("payments", repartition={"r": 3})
    wrong = problem(topology, orders=2, payments=7)
    assert wrong is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_joined_repartition_topics_follow_the_fixed_one_or_the_largest() -> None:
    found = configured(join_of(repartition={"a": 0, "b": 6}), orders=2)
    assert [topic.partitions for topic in found.missing] == [6, 6]
    found = configured(join_of(repartition={"a": 0, "b": 0}), orders=4)
    assert [topic.partitions for topic in found.missing] == [4, 4]
    differ = join_of(repartition={"a": 5, "b": 6})
    assert problem(differ, orders=2) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_repartition_topics_are_counted_along_the_chain() -> None:
    topology = Topology(
        0,
        (
            subtopology(
                0,
                repartition_source_topics=(InternalTopic("second", 0, 0),),
            ),
            subtopology(
                1,
                repartition_source_topics=(InternalTopic("first", 0, 0),),
                repartition_sink_topics=("second",),
            ),
            subtopology(2, "orders", repartition_sink_topics=("first",)),
        ),
    )
    found = configured(topology, orders=6)
    assert {topic.name: topic.partitions for topic in found.missing} == {"first": 6, "second": 6}


def invalid(topology: Topology, **topics: int) -> str:
    with pytest.raises(KafkaError) as refused:
        check_topology(topology)
        configured(topology, **topics)
    assert refused.value.code is KafkaCode.STREAMS_INVALID_TOPOLOGY
    return str(refused.value)


def test_a_loop_of_repartition_topics_is_invalid() -> None:
    def link(number: int, source: str, sink: str) -> Any:
        sources = (InternalTopic(source, 0, 0),)
        return subtopology(
            number, repartition_source_topics=sources, repartition_sink_topics=(sink,)
        )

    assert "loops" in invalid(Topology(0, (link(0, "a", "b"), link(1, "b", "a"))))


def test_a_repartition_topic_that_nobody_writes_is_invalid() -> None:
    reader = subtopology(0, "orders", repartition_source_topics=(InternalTopic("r", 0, 0),))
    assert "never used as a sink" in invalid(Topology(0, (reader,)), orders=1)


def test_what_no_topics_could_make_work_is_invalid() -> None:
    assert "No source topics" in invalid(Topology(0, (subtopology(0),)))
    assert "same id" in invalid(Topology(0, (subtopology(0, "a"), subtopology(0, "b"))))
    assert "negative" in invalid(Topology(-1, ()))
    sized = subtopology(0, "a", changelog_topics=(InternalTopic("c", 3, 0),))
    assert "undefined partition count" in invalid(Topology(0, (sized,)))
    below = subtopology(0, "a", repartition_source_topics=(InternalTopic("r", -1, 0),))
    assert "-1 partitions" in invalid(Topology(0, (below,)))
    far = subtopology(0, "a", copartition_groups=(CopartitionGroup((1,), (), ()),))
    assert "does not have" in invalid(Topology(0, (far,)))


def test_a_topology_with_too_many_tasks_is_invalid() -> None:
    many = tuple(subtopology(number, "orders") for number in range(51))
    assert "tasks" in invalid(Topology(0, many), orders=1000)


def test_topologies_are_compared_without_the_order_of_subtopologies() -> None:
    turned = replace(WORD_COUNT, subtopologies=WORD_COUNT.subtopologies[::-1])
    assert is_same(turned, WORD_COUNT)
    assert not is_same(word_count(3), WORD_COUNT)
    assert not is_same(replace(WORD_COUNT, epoch=1), WORD_COUNT)


def test_every_topic_of_a_topology_is_named() -> None:
    assert named_topics(WORD_COUNT) == {"orders", REPARTITION, CHANGELOG}


# -- repartition topics, counted in rounds -----------------------------------------------

OWN_TOPICS = {"x": 1, "y": 2, "z": 3}


def random_topology(random: Random) -> Topology:
    def any_subtopology(number: int) -> Subtopology:
        own = random.sample(sorted(OWN_TOPICS), random.choice([0, 0, 1]))
        return subtopology(
            number,
            *own,
            repartition_source_topics=tuple(
                InternalTopic(name, random.choice([0] * 9 + [4]), 0)
                for name in random.choices("abcd", k=random.choice([0, 1, 2] if own else [1, 2]))
            ),
            repartition_sink_topics=tuple(random.choices("abcdx", k=random.choice([0, 1, 1, 3]))),
        )

    return Topology(0, tuple(any_subtopology(number) for number in range(random.randint(1, 8))))


def counted_in_rounds(topology: Topology) -> dict[str, int] | str:
    """The plain rule: look at every sink that is left, until nothing is left or nothing helps."""
    read = [topic for each in topology.subtopologies for topic in each.repartition_source_topics]
    decided = {topic.name: topic.partitions for topic in read if topic.partitions != 0}
    left = [
        (sink, each)
        for each in topology.subtopologies
        for sink in each.repartition_sink_topics
        if sink not in decided
    ]
    while left:
        before, left = left, []
        for sink, writer in before:
            names = [topic.name for topic in writer.repartition_source_topics]
            found = [decided[name] for name in names if name in decided]
            found += [OWN_TOPICS[name] for name in writer.source_topics]
            if found:
                decided.setdefault(sink, max(found))
            else:
                left.append((sink, writer))
        if len(left) == len(before):
            return "loops"
    missing = any(topic.name not in decided for topic in read)
    return "never used as a sink" if missing else {one.name: decided[one.name] for one in read}


@settings(max_examples=1000)
@given(some.integers(0, 2**32))
def test_every_topology_is_counted_as_by_the_plain_rule(seed: int) -> None:
    # Not drawn by parts: those drawn are so plain that the order of the rounds never matters.
    topology = random_topology(Random(seed))
    expected = counted_in_rounds(topology)
    if isinstance(expected, str):
        assert expected in invalid(topology, **OWN_TOPICS)
        return
    found = configured(topology, **OWN_TOPICS)
    assert expected == {
        topic.name: topic.partitions
        for each in found.subtopologies
        for topic in each.repartition_source_topics
    }


def chain_and_crowd(size: int) -> Topology:
    """A chain that is listed from its end, and a subtopology with many sources that nobody writes
    and many sinks."""
    chain = [
        subtopology(
            number,
            repartition_source_topics=(InternalTopic(f"link{number - 1}", 0, 0),),
            repartition_sink_topics=(f"link{number}",),
        )
        for number in range(size, 0, -1)
    ]
    first = subtopology(0, "orders", repartition_sink_topics=("link0",))
    crowd = subtopology(
        size + 1,
        repartition_source_topics=tuple(InternalTopic(f"in{n}", 0, 0) for n in range(3 * size)),
        repartition_sink_topics=tuple(f"out{n}" for n in range(3 * size)),
    )
    return Topology(0, (*chain, first, crowd))


def test_the_work_grows_with_the_topology_even_if_it_is_invalid() -> None:
    def work(size: int) -> int:
        topology = chain_and_crowd(size)
        return steps(lambda: invalid(topology, orders=1))

    assert work(80) < 5 * work(20)
