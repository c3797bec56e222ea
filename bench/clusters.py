"""The two that are compared as clusters of three: Millstream with its ZooKeeper, and Kafka.

Both with their defaults. Kafka's nodes are brokers and controllers at once, as ours are; what
our ZooKeeper costs is counted beside our nodes wherever Kafka's controllers are counted.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata, NewTopic

from bench.brokers import Broker, Kafka, Millstream, cpu_seconds_of, free_port, memory_bytes_of
from bench.clients import admin_client, wait_until_served
from millstream.cli.zookeeper import ZooKeeperServer, class_path

NODES: Final = (1, 2, 3)
_SECONDS_MAX: Final = 300.0
_POLL_SECONDS: Final = 0.01


class Cluster(ABC):
    name: str

    def __init__(self, nodes: dict[int, Broker]) -> None:
        self.nodes = nodes

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        # Together: a single one of Kafka's waits for a majority before it answers.
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait()

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.stop(), self.nodes.values()))

    def cpu_seconds(self) -> float:
        return sum(node.cpu_seconds() for node in self.nodes.values() if node.is_running)

    def nodes_memory_bytes(self) -> int:
        return sum(node.memory_bytes() for node in self.nodes.values())

    @abstractmethod
    def memory_bytes(self) -> int:
        """Of everything that has to run."""

    def create_topic(self, name: str, *, partitions: int) -> None:
        admin = admin_client(self.bootstrap)
        topic = NewTopic(name, partitions, len(self.nodes))
        admin.create_topics([topic])[name].result(60)
        self.wait_in_sync(name)
        wait_until_served(self.bootstrap, {name: partitions})

    def delete_topic(self, name: str) -> None:
        # The client must outlive its answer.
        admin = admin_client(self.bootstrap)
        admin.delete_topics([name])[name].result(60)

    def leaders(self, topic: str) -> dict[int, int]:
        """Node ids by partition."""
        found = admin_client(self.bootstrap).list_topics(topic, timeout=60).topics[topic]
        return {number: one.leader for number, one in found.partitions.items()}

    def wait_in_sync(self, topic: str) -> None:
        """Until all partitions have a leader and all nodes in their ISR."""
        admin = admin_client(self.bootstrap)

        def is_so() -> bool:
            try:
                return _is_in_sync(admin.list_topics(topic, timeout=5), topic, len(self.nodes))
            except KafkaException:
                return False

        wait_until(is_so, f"{topic} is in sync")


class MillstreamCluster(Cluster):
    name = "Millstream"

    def __init__(self, folder: Path) -> None:
        self._zookeeper = ZooKeeperServer(folder / "zookeeper", port=free_port())
        settings = ("--set", f"zookeeper.connect={self._zookeeper.address}")
        super().__init__(
            {
                node: Millstream(folder / f"node-{node}", *settings, "--set", f"node.id={node}")
                for node in NODES
            }
        )

    def start(self) -> None:
        self._zookeeper.start(class_path())
        super().start()

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()

    def cpu_seconds(self) -> float:
        return super().cpu_seconds() + cpu_seconds_of(self._zookeeper.process.pid)

    def memory_bytes(self) -> int:
        return self.nodes_memory_bytes() + memory_bytes_of(self._zookeeper.process.pid)


class KafkaCluster(Cluster):
    name = "Kafka"

    def __init__(self, folder: Path) -> None:
        voters = {node: free_port() for node in NODES}
        super().__init__(
            {node: Kafka(folder / f"node-{node}", node_id=node, voters=voters) for node in NODES}
        )

    def memory_bytes(self) -> int:
        return self.nodes_memory_bytes()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"waited {_SECONDS_MAX:.0f} s in vain until {what}"
        time.sleep(_POLL_SECONDS)


def _is_in_sync(found: ClusterMetadata, topic: str, replicas: int) -> bool:
    described = found.topics.get(topic)
    if described is None or described.error is not None or not described.partitions:
        return False
    return all(
        one.leader >= 0 and len(one.isrs) == replicas for one in described.partitions.values()
    )
