"""At every moment each partition has one owner at most, as the members themselves see it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.interop.groups.crowd import Crowd
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


@pytest.fixture(scope="module")
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
