"""Three Millstream nodes as users start them, with a real ZooKeeper beside them."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from millstream.cli.client_options import librdkafka_names, security_of_file
from millstream.client.blocking import Address, Connection
from millstream.config.files import read_option_file
from millstream.wire.apis.metadata import MetadataRequest
from tests.faults.network import Network
from tests.support.node import MillstreamNode
from tests.support.zookeeper import ZooKeeperEnsemble, zookeeper_server

_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.02
_QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


class MillstreamCluster:
    """`nodes` by their ids, which count from 1."""

    def __init__(
        self,
        nodes: dict[int, MillstreamNode],
        zookeeper_pid: int,
        client_config: Path | None = None,
    ) -> None:
        """`client_config` is a file with the options that clients need, in Kafka's names."""
        self.nodes = nodes
        self.client_config = client_config
        self._security = security_of_file(client_config)
        self._login = {} if client_config is None else librdkafka_options(client_config)
        self._zookeeper_pid = zookeeper_pid
        # Makes another node of the cluster, which is not started.
        self.new_node: Callable[[int], MillstreamNode] | None = None
        self.bootstrap = ""
        self._admin: AdminClient | None = None

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes.values())
        self._admin = AdminClient({**self.client, **_QUIET})
        for node in self.nodes.values():
            wait_until(partial(self._is_told_of_all, node), "every node knows every other")

    @property
    def client(self) -> dict[str, str]:
        """Options of any client, in librdkafka's names."""
        return {"bootstrap.servers": self.bootstrap, **self._login}

    def _is_told_of_all(self, node: MillstreamNode) -> bool:
        """Each serves as soon as it can, and hears of the others a moment later."""
        host, _, port = node.bootstrap.rpartition(":")
        asked = Connection(Address(host, int(port)), client_id="t", security=self._security)
        with contextlib.closing(asked):
            brokers = asked.ask(MetadataRequest(topics=[]), 1).brokers
        return {broker.node_id for broker in brokers} == set(self.nodes)

    def create_topic(self, name: str, partitions: int, **config: str) -> None:
        """A node that was away may not be back for the controller: asked again until it is."""
        wait_until(
            lambda: self._creates(name, partitions, config), f"{name} has {len(self.nodes)} nodes"
        )
        self.wait_until_in_sync(name)

    def _creates(self, name: str, partitions: int, config: dict[str, str]) -> bool:
        assert self._admin is not None
        topic = NewTopic(name, partitions, len(self.nodes), config=config)
        try:
            self._admin.create_topics([topic])[name].result(20)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    def metadata(self, topic: str) -> ClusterMetadata | None:
        """None while nobody answers."""
        assert self._admin is not None
        try:
            return self._admin.list_topics(topic, timeout=5)
        except KafkaException:
            return None

    def leaders(self, topic: str) -> dict[int, int]:
        found: ClusterMetadata | None = None

        def is_answered() -> bool:
            nonlocal found
            found = self.metadata(topic)
            return found is not None

        wait_until(is_answered, f"somebody tells who leads {topic}")
        assert found is not None
        return {index: one.leader for index, one in found.topics[topic].partitions.items()}

    def controller_id(self, topic: str) -> int:
        found = self.metadata(topic)
        return -1 if found is None else int(found.controller_id)

    def wait_until_in_sync(self, topic: str) -> None:
        """Every partition has a leader and everybody in sync."""

        def is_so() -> bool:
            found = self.metadata(topic)
            if found is None or topic not in found.topics or not found.topics[topic].partitions:
                return False
            partitions = found.topics[topic].partitions.values()
            return all(
                one.leader in self.nodes and len(one.isrs) == len(self.nodes) for one in partitions
            )

        wait_until(is_so, f"all replicas of {topic} are in sync")

    def freeze_zookeeper(self) -> None:
        """It is there and says nothing."""
        os.kill(self._zookeeper_pid, signal.SIGSTOP)

    def thaw_zookeeper(self) -> None:
        os.kill(self._zookeeper_pid, signal.SIGCONT)

    def kill_all(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()


def librdkafka_options(client_config: Path) -> dict[str, str]:
    """The options of a client file, as librdkafka takes them; without the address."""
    return librdkafka_names(read_option_file(client_config))


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"waited {_SECONDS_MAX} s in vain until {what}"
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def millstream_cluster(
    folder: Path,
    *options: str,
    count: int = 3,
    data_dir: Callable[[int], Path] | None = None,
    network: Network | None = None,
    ensemble: ZooKeeperEnsemble | None = None,
    packages: Path | None = None,
) -> Iterator[MillstreamCluster]:
    """`data_dir` says where a node keeps its data; in `folder` where it does not. With a
    `network` each node has its own namespace. Without an `ensemble` the cluster has one
    ZooKeeper server. With `packages` nodes start in the version that is installed there."""
    folder.mkdir(parents=True, exist_ok=True)
    host = "127.0.0.1" if network is None else network.zookeeper
    with contextlib.ExitStack() as stack:
        zookeeper_pid = -1
        if ensemble is None:
            server = stack.enter_context(zookeeper_server(folder / "zookeeper", host=host))
            zookeeper_pid = server.process.pid
        address = server.address if ensemble is None else ensemble.address

        def new_node(node_id: int) -> MillstreamNode:
            place = data_dir(node_id) if data_dir is not None else folder / f"node-{node_id}"
            settings = {
                "node.id": str(node_id),
                "zookeeper.connect": address,
                "min.insync.replicas": "2",
                "default.replication.factor": str(count),
                "log.segment.bytes": "1048576",
            }
            flags = [
                part for name, value in settings.items() for part in ("--set", f"{name}={value}")
            ]
            logs = folder / f"logs-{node_id}"
            logs.mkdir()
            node = MillstreamNode(place, *flags, *options)
            node.keep_log_in(logs)
            node.packages = packages
            if network is not None:
                node.run_inside(network.inside(node_id), network.address(node_id))
            return node

        nodes = {node_id: new_node(node_id) for node_id in range(1, count + 1)}
        cluster = MillstreamCluster(nodes, zookeeper_pid)
        cluster.new_node = new_node
        try:
            cluster.start()
            yield cluster
            cluster.stop()
        finally:
            cluster.kill_all()
