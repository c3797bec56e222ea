"""Burrow reads our `__consumer_offsets` as it reads Kafka's of its time.

Its lag is another matter: for the ends of partitions it asks ListOffsets 0, which Kafka 4
has dropped as we have. See docs/groups.md.
"""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.apache_kafka import ApacheKafka
from tests.support.burrow import Burrow
from tests.support.node import MillstreamNode
from tests.support.waiting import wait_until

TOPIC = "orders"
GROUP = "readers"
READ_SECONDS_MAX = 60


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(20)


def commit(bootstrap: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    consumer.commit(
        offsets=[TopicPartition(TOPIC, index, offset) for index, offset in enumerate(offsets)],
        asynchronous=False,
    )
    consumer.close()


def test_burrow_reads_the_commits_that_we_write(tmp_path: Path) -> None:
    options = ("--dev", "--set", "offsets.topic.num.partitions=4")
    with MillstreamNode(tmp_path / "data", *options) as node:
        create_topic(node.bootstrap)
        commit(node.bootstrap, 5, 7)
        with Burrow(tmp_path / "burrow", node.bootstrap) as burrow:
            wait_until(
                lambda: burrow.commits(GROUP) == {(TOPIC, 0): 5, (TOPIC, 1): 7},
                "Burrow has read what was there",
                seconds_max=READ_SECONDS_MAX,
            )
            commit(node.bootstrap, 6, 1 << 40)
            wait_until(
                lambda: burrow.commits(GROUP) == {(TOPIC, 0): 6, (TOPIC, 1): 1 << 40},
                "Burrow has read what came later",
                seconds_max=READ_SECONDS_MAX,
            )
            assert not [line for line in burrow.log() if line["msg"] == "failed to decode"]


@pytest.mark.parametrize("kind", ["millstream", "kafka"])
def test_burrow_cannot_ask_kafka_4_nor_us_for_the_end_of_a_partition(
    tmp_path: Path, kind: str
) -> None:
    broker = (
        MillstreamNode(tmp_path / "data", "--dev")
        if kind == "millstream"
        else ApacheKafka(tmp_path / "data")
    )
    refusal = {
        "millstream": "LIST_OFFSETS version 0 is not supported",
        "kafka": "key 2 (ListOffsets) and unsupported version 0",
    }[kind]
    with broker:
        create_topic(broker.bootstrap)
        with Burrow(tmp_path / "burrow", broker.bootstrap):
            wait_until(
                lambda: refusal in broker.log_text,
                "Burrow's request for the ends is refused",
                seconds_max=READ_SECONDS_MAX,
            )
