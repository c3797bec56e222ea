"""One Spark session for all tests that need one, and small helpers around a broker."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The core is complete without the extra.
if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

Produce = Callable[..., None]

# Another data source on the path, found by the same search as ours.
NEIGHBOUR = """
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        yield (7,)

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "neighbour"
    def schema(self):
        return "number int"
    def reader(self, schema):
        return Reader()
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    # Spark takes python3 from the PATH for its workers, which need not be this one.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    neighbours = tmp_path_factory.mktemp("neighbours")
    (neighbours / "pyspark_neighbour.py").write_text(NEIGHBOUR)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(neighbours), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    from pyspark.sql import SparkSession

    from tests.support.spark_connector import connector_jars

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # Short lives: the best compiler's work would never pay.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "OFF")
        # Spark's own Kafka connector, which must work against us as well.
        .config("spark.jars", connector_jars())
        .getOrCreate()
    )
    yield session
    session.stop()


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
