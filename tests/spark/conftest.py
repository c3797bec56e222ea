"""A Spark session, and small helpers around a broker."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The core is complete without the extra.
if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

Produce = Callable[..., None]


@pytest.fixture(scope="session")
def spark(shared_spark: "SparkSession") -> "SparkSession":
    """Settings and registered sources of its own, in the one JVM that there is."""
    return shared_spark.newSession()


@pytest.fixture
def produce(kafka: Broker) -> Produce:
    """Sends values to a partition of a topic and waits until they are there."""

    def send(topic: str, values: Sequence[bytes], *, partition: int = 0, **fields: object) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5})
        for value in values:
            producer.produce(topic, value=value, partition=partition, **fields)
        assert producer.flush(20) == 0

    return send


def consume(bootstrap: str, topic: str, *, partitions: int, isolation: str) -> list[bytes]:
    """All values of a topic, as a consumer sees them now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(10)
        assert message is not None, "no end of the partition in 10 s"
        if message.error():
            ended.add(message.partition())
        else:
            values.append(message.value())
    consumer.close()
    return values
