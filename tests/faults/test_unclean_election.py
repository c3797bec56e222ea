"""A replica that lacks records leads where that is enabled, nowhere else; the loss is logged."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster import MillstreamCluster, millstream_cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]

LOSSY, STRICT = "lossy", "strict"
STAYS, DIES = 3, 2


def create(cluster: MillstreamCluster, topic: str, *, unclean: bool) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    config = {
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true" if unclean else "false",
    }
    wanted = NewTopic(topic, num_partitions=1, replica_assignment=[[DIES, STAYS]], config=config)
    admin.create_topics([wanted])[topic].result(30)


def isr(cluster: MillstreamCluster, topic: str) -> set[int]:
    found = cluster.metadata(topic)
    return set() if found is None else set(found.topics[topic].partitions[0].isrs)


def produce(cluster: MillstreamCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0


def wait_for_end(cluster: MillstreamCluster, topic: str, offset: int) -> None:
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0}
    consumer = Consumer(options)

    def is_there() -> bool:
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        except KafkaException:
            # A new leader is not known to everybody yet.
            return False
        return bool(end == offset)

    try:
        wait_until(is_there, f"{topic} ends at {offset}")
    finally:
        consumer.close()


@pytest.mark.timeout(300)
def test_only_where_it_is_enabled(tmp_path: Path) -> None:
    with millstream_cluster(tmp_path) as cluster:
        for topic in (LOSSY, STRICT):
            create(cluster, topic, unclean=topic == LOSSY)
            produce(cluster, topic, 5)
        cluster.nodes[STAYS].kill()
        for topic in (LOSSY, STRICT):
            wait_until(lambda topic=topic: isr(cluster, topic) == {DIES}, "one is in sync")  # type: ignore[misc]
            produce(cluster, topic, 7)
        cluster.nodes[DIES].kill()
        cluster.nodes[STAYS].start()
        wait_until(lambda: cluster.leaders(LOSSY) == {0: STAYS}, "the unclean replica leads")
        wait_for_end(cluster, LOSSY, 5)
        assert cluster.leaders(STRICT) == {0: -1}, "nobody may lead but who has all records"
        said = "".join(node.log_text for node in cluster.nodes.values())
        assert f"{LOSSY}-0: unclean election: node {STAYS} leads" in said
        assert f"{STRICT}-0: unclean election" not in said
        cluster.nodes[DIES].start()
        wait_until(lambda: cluster.leaders(STRICT) == {0: DIES}, "who has all records leads")
        wait_for_end(cluster, STRICT, 12)
        wait_until(lambda: isr(cluster, LOSSY) == {DIES, STAYS}, "both are in sync again")
        wait_for_end(cluster, LOSSY, 5)
        lost = rf"{LOSSY}-0: offsets 5 to 11, .* are lost after an unclean election"
        assert re.search(lost, cluster.nodes[DIES].log_text)
        produce(cluster, LOSSY, 1)
        wait_for_end(cluster, LOSSY, 6)
