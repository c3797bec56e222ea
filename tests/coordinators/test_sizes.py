"""Sizes are about what the memory is that clients make a node take."""

import sys
from dataclasses import replace

import pytest

from millstream.coordinators import sizes
from millstream.coordinators.codecs.changes import (
    ClassicProtocols,
    SharedTopic,
    SharedTopics,
    StoredConsumerMember,
)
from millstream.coordinators.codecs.streams_changes import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from millstream.model import NO_TOPIC_ID

MANY = 1_000
LONG = "a" * MANY
MEMBER = StoredConsumerMember(None, None, "", "/10.0.0.1", (), None, 1, None)
SUBTOPOLOGY = Subtopology("0", (), (), (), (), (), ())


def test_many_short_names_count_as_what_they_take() -> None:
    names = tuple(str(number) for number in range(MANY))
    taken = sys.getsizeof(names) + sum(map(sys.getsizeof, names))
    assert taken * 0.8 < sizes.texts_bytes(names) < taken * 1.25


@pytest.mark.parametrize(
    "large",
    [
        replace(MEMBER, instance_id=LONG),
        replace(MEMBER, rack_id=LONG),
        replace(MEMBER, client_id=LONG),
        replace(MEMBER, topics=(LONG,)),
        replace(MEMBER, pattern=LONG),
        replace(MEMBER, assignor=LONG),
        replace(MEMBER, classic=ClassicProtocols(1, (("range", bytes(MANY)),))),
    ],
)
def test_whatever_a_consumer_names_counts(large: StoredConsumerMember) -> None:
    assert sizes.consumer_member_bytes(large) >= sizes.consumer_member_bytes(MEMBER) + MANY


@pytest.mark.parametrize(
    "large",
    [
        replace(SUBTOPOLOGY, subtopology_id=LONG),
        replace(SUBTOPOLOGY, source_topics=(LONG,)),
        replace(SUBTOPOLOGY, source_topic_patterns=(LONG,)),
        replace(SUBTOPOLOGY, changelog_topics=(InternalTopic(LONG, 0, 0),)),
        replace(SUBTOPOLOGY, changelog_topics=(InternalTopic("t", 0, 0, (("k", LONG),)),)),
        replace(SUBTOPOLOGY, repartition_sink_topics=(LONG,)),
        replace(SUBTOPOLOGY, repartition_source_topics=(InternalTopic(LONG, 0, 0),)),
        replace(SUBTOPOLOGY, copartition_groups=(CopartitionGroup((0,) * MANY, (), ()),)),
    ],
)
def test_every_part_of_a_topology_counts(large: Subtopology) -> None:
    small = sizes.topology_bytes(Topology(1, (SUBTOPOLOGY,)))
    assert sizes.topology_bytes(Topology(1, (large,))) >= small + MANY - len("0")


def test_every_state_of_shared_topics_counts() -> None:
    topic = {NO_TOPIC_ID: SharedTopic(LONG, (0,))}
    for shared in (
        SharedTopics(initializing=topic),
        SharedTopics(initialized=topic),
        SharedTopics(deleting={NO_TOPIC_ID: LONG}),
    ):
        assert sizes.shared_topics_bytes(shared) >= MANY
