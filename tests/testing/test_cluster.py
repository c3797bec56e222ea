"""Several brokers in a test: they fail over, come back, and are cut off."""

import pytest
from confluent_kafka import Producer

from millstream.testing.cluster import Cluster
from millstream.wire.apis.metadata import MetadataRequest
from tests.support.raw_client import RawClient

TOPIC = "orders"


def put(cluster: Cluster, count: int) -> None:
    """With acks=all; every record is acknowledged when this returns."""
    failed = []
    producer = Producer({**cluster.client_config(), "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(
            TOPIC,
            str(number),
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failed == []


def test_records_survive_a_killed_leader() -> None:
    with Cluster(topics={TOPIC: 1}) as cluster:
        put(cluster, 20)
        leader = cluster.leader(TOPIC, 0)
        cluster.kill(leader)
        assert leader not in cluster.running
        put(cluster, 20)
        assert cluster.leader(TOPIC, 0) != leader
        cluster.restart(leader)
        cluster.wait_in_sync()
        assert sorted(cluster.in_sync(TOPIC, 0)) == [1, 2, 3]
        assert len(cluster.topic(TOPIC).records()) == 40
        assert cluster.controller in (1, 2, 3)


def test_a_leader_that_is_cut_off_is_replaced() -> None:
    with Cluster(topics={TOPIC: 1}) as cluster:
        put(cluster, 5)
        leader = cluster.leader(TOPIC, 0)
        cluster.partition_network({leader})
        put(cluster, 5)
        assert cluster.leader(TOPIC, 0) != leader
        assert leader not in cluster.in_sync(TOPIC, 0)
        # A client that only reached this one would ask it for ever.
        address = cluster.bootstrap.split(",")[leader - 1]
        with RawClient(address) as client:
            answer = client.ask(MetadataRequest(topics=None), 9)
            assert [one.leader_id for one in answer.topics[0].partitions] == [-1]
            with pytest.raises(ConnectionError):
                client.ask(MetadataRequest(topics=None), 9)
        cluster.heal_network()
        cluster.wait_in_sync()
        assert leader in cluster.in_sync(TOPIC, 0)
        assert len(cluster.topic(TOPIC).records()) == 10


def test_all_brokers_stop_and_start_with_their_data_and_ports() -> None:
    with Cluster(brokers=2, topics={TOPIC: 1}, storage="disk") as cluster:
        bootstrap = cluster.bootstrap
        put(cluster, 3)
        for node_id in cluster.ids:
            cluster.stop(node_id)
        cluster.repair()
        assert cluster.bootstrap == bootstrap
        assert len(cluster.topic(TOPIC).records()) == 3
        cluster.restart(1)
        assert cluster.running == [1, 2]


def test_a_secured_cluster_and_its_faults() -> None:
    with Cluster(topics={TOPIC: 1}, security="sasl_ssl") as cluster:
        assert cluster.client_config()["security.protocol"] == "SASL_SSL"
        rule = cluster.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1, topic=TOPIC)
        put(cluster, 1)
        assert rule.applied == 1
        assert cluster.requests("Produce")[0].fault is not None


def test_mistakes_are_explained() -> None:
    with pytest.raises(ValueError, match="replication is between 1 and 2, not 3"):
        Cluster(brokers=2, replication=3)
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(brokers=0)
    with pytest.raises(ValueError, match=r"chooses log\.dirs"):
        Cluster(settings={"log.dirs": "/data"})
    cluster = Cluster(brokers=1)
    with pytest.raises(ValueError, match="is on one side at most"):
        cluster.partition_network({1}, {1})
    with pytest.raises(ValueError, match="broker 1 does not run"):
        cluster.kill(1)
