"""Brokers as processes, with a real ZooKeeper. Covers testing/node_process.py too."""

from collections.abc import Collection

import pytest
from confluent_kafka import Producer

from millstream.testing.process_cluster import ProcessCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
TOPIC = "orders"


def put(cluster: ProcessCluster, count: int, unnamed: Collection[int] = ()) -> None:
    """With acks=all; every record is acknowledged when this returns. Some nodes are not named to
    the producer."""
    failed = []
    addresses = dict(zip(cluster.ids, cluster.bootstrap.split(","), strict=True))
    reached = ",".join(one for node_id, one in addresses.items() if node_id not in unnamed)
    producer = Producer({"bootstrap.servers": reached, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(
            TOPIC,
            str(number),
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(100) == 0
    assert failed == []


def test_killed_and_cut_off_leaders_are_replaced() -> None:
    with ProcessCluster(topics={TOPIC: 1}) as cluster:
        put(cluster, 10)
        leader = cluster.leader(TOPIC, 0)
        cluster.kill(leader)
        assert leader not in cluster.running
        put(cluster, 10)
        assert cluster.leader(TOPIC, 0) != leader
        cluster.repair()
        assert sorted(cluster.in_sync(TOPIC, 0)) == [1, 2, 3]
        leader = cluster.leader(TOPIC, 0)
        cluster.partition_network({leader})
        wait_until(lambda: cluster.leader(TOPIC, 0) != leader, "another node leads")
        put(cluster, 10, unnamed={leader})
        cluster.heal_network()
        cluster.wait_in_sync()
        cluster.stop(1)
        cluster.restart(1)
        cluster.repair()
        assert cluster.controller in cluster.running
        assert len(cluster.topic(TOPIC).records()) == 30


def test_clients_of_a_leader_that_is_cut_off_find_the_next_one() -> None:
    with ProcessCluster(topics={TOPIC: 1}) as cluster:
        put(cluster, 10)
        leader = cluster.leader(TOPIC, 0)
        others = set(cluster.ids) - {leader}
        cluster.partition_network({leader})
        wait_until(lambda: cluster.leader(TOPIC, 0) != leader, "another node leads")
        # They know that leader alone, and it names itself until it gives its roles up.
        put(cluster, 10, unnamed=others)
        cluster.heal_network()
        cluster.wait_in_sync()
        assert leader in cluster.in_sync(TOPIC, 0)
        assert len(cluster.topic(TOPIC).records()) == 20


def test_mistakes_are_explained() -> None:
    with pytest.raises(ValueError, match="replication is between 1 and 2, not 3"):
        ProcessCluster(brokers=2, replication=3)
    with pytest.raises(ValueError, match=r"chooses zookeeper\.connect"):
        ProcessCluster(settings={"zookeeper.connect": "127.0.0.1:2181"})
    with pytest.raises(ValueError, match="broker 1 does not run"):
        ProcessCluster().kill(1)
