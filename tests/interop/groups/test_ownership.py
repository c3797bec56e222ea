"""At every moment each partition has one owner at most, as the members themselves see it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.interop.groups.crowd import Crowd, Process
from tests.support.node import MillstreamNode

PARTITIONS = 60
MEMBERS = 100
PER_PROCESS = 10
KINDS = ["confluent-eager", "confluent-cooperative", "confluent-consumer"]
ALL_KINDS = [*KINDS, "kafka-python", "aiokafka", "java-classic", "java-consumer"]
# Short sessions, so that a test need not wait long for a killed member to be missed.
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "300",
}


# Cheap, and no reason for all of these long tests to be run by one worker.
@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data_dir: Path = tmp_path_factory.mktemp("groups") / "data"
    options = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    with MillstreamNode(data_dir, "--dev", *options) as running:
        yield running.bootstrap


def create_topic(bootstrap: str, name: str, partitions: int) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    [created] = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    created.result(20)
    return admin


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_members_come_leave_and_die_and_topics_grow(node: str, kind: str) -> None:
    topic = f"life-{kind}"
    admin = create_topic(node, topic, 6)
    with Crowd(node, f"group-{kind}", topic, 6) as crowd:
        first = crowd.start(kind, 1)
        crowd.wait_until_shared()
        second = crowd.start(kind, 2)
        crowd.wait_until_shared()
        second.leave(second.members[0])
        crowd.wait_until_shared()
        crowd.add(first)
        crowd.wait_until_shared()
        crowd.kill(second)
        crowd.wait_until_shared()
        [grown] = admin.create_partitions([NewPartitions(topic, 9)]).values()
        grown.result(20)
        crowd.wait_until_shared(partitions=9)
        first.stop()
        assert crowd.ledger.overlaps() == []


@pytest.mark.parametrize("kind", ["confluent-eager", "confluent-consumer"])
def test_a_failure_says_what_the_coordinator_believes(node: str, kind: str) -> None:
    topic = f"told-{kind}"
    create_topic(node, topic, 2)
    with Crowd(node, f"told-{kind}", topic, 2) as crowd:
        crowd.start(kind, 1)
        crowd.wait_until_shared()
        with pytest.raises(AssertionError, match=f"told-{kind} is Stable.*\n  m1 .*has .*{topic}"):
            crowd.wait_until_shared(0, partitions=3)


def start_two(crowd: Crowd, kind: str) -> list[Process]:
    processes = []
    for _ in range(2):
        processes.append(crowd.start(kind, 1))
        crowd.wait_until_shared()
    return processes


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_member_subscribes_to_one_more_topic(node: str, kind: str) -> None:
    old, new = f"old-{kind}", f"new-{kind}"
    create_topic(node, old, 4)
    create_topic(node, new, 4)
    with Crowd(node, f"growing-{kind}", old, 4) as crowd:
        processes = start_two(crowd, kind)
        [first], [second] = (process.members for process in processes)
        processes[0].subscribe(first, old, new)
        crowd.wait_until_owned({old: {first, second}, new: {first}}, partitions=4)
        for process in processes:
            process.stop()
        assert crowd.ledger.overlaps() == []


# Not cooperative-sticky of librdkafka: it leaves the topic that a member gave up without an
# owner, with Apache Kafka as well.
@pytest.mark.parametrize("kind", [kind for kind in ALL_KINDS if kind != "confluent-cooperative"])
def test_members_subscribe_to_other_topics(node: str, kind: str) -> None:
    old, new = f"left-{kind}", f"taken-{kind}"
    create_topic(node, old, 4)
    create_topic(node, new, 4)
    with Crowd(node, f"changing-{kind}", old, 4) as crowd:
        processes = start_two(crowd, kind)
        [first], [second] = (process.members for process in processes)
        processes[1].subscribe(second, new)
        crowd.wait_until_owned({old: {first}, new: {second}}, partitions=4)
        processes[0].subscribe(first, old, new)
        crowd.wait_until_owned({old: {first}, new: {first, second}}, partitions=4)
        processes[0].subscribe(first, new)
        crowd.wait_until_owned({new: {first, second}}, partitions=4)
        for process in processes:
            process.stop()
        assert crowd.ledger.overlaps() == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_members_with_random_joins_and_kills(node: str, kind: str) -> None:
    topic = f"crowd-{kind}"
    create_topic(node, topic, PARTITIONS)
    chance = random.Random(7)
    with Crowd(node, f"crowd-{kind}", topic, PARTITIONS) as crowd:
        for _ in range(MEMBERS // PER_PROCESS):
            crowd.start(kind, PER_PROCESS)
        crowd.wait_until_shared(120)
        for _ in range(3):
            crowd.kill(chance.choice(crowd.processes))
            process = chance.choice(crowd.processes)
            process.leave(chance.choice(process.members))
            crowd.start(kind, PER_PROCESS)
            crowd.add(chance.choice(crowd.processes))
            crowd.wait_until_shared(120)
        assert crowd.member_count == MEMBERS
        assert crowd.ledger.overlaps() == []
