"""The commands that operate a cluster, on four nodes of Apache Kafka.

Covers cli/cluster_moves.py, cli/cluster_rebalance.py, cli/cluster_reassign.py,
cli/cluster_throttle.py, cli/cluster_health.py, cli/cluster_elect.py.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.support.apache_kafka import ApacheKafka
from tests.support.cluster import wait_until
from tests.support.command_line import Ran, run_millstream
from tests.support.tools import skip_if_java_is_left_out

pytestmark = [pytest.mark.slow, pytest.mark.java]

TOPIC = "moved"


class KafkaCluster:
    """The first node is the controller, too. A node may be started later."""

    def __init__(self, folder: Path) -> None:
        first = ApacheKafka(folder / "node-1")
        others = {
            n: ApacheKafka(folder / f"node-{n}", member_of=first, node_id=n) for n in (2, 3, 4)
        }
        self.nodes = {1: first, **others}

    @property
    def bootstrap(self) -> str:
        return f"{self.nodes[1].bootstrap},{self.nodes[2].bootstrap}"

    def ran(self, *words: str, code: int = 0) -> Ran:
        done = run_millstream(*words, bootstrap=self.bootstrap, seconds_max=200)
        assert done.exit_code == code, (words, done.output, done.errors)
        return done

    def partitions(self) -> dict[int, PartitionMetadata]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        found: dict[int, PartitionMetadata] = (
            admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        )
        return found

    def replicas(self) -> dict[int, list[int]]:
        return {number: list(one.replicas) for number, one in self.partitions().items()}

    def in_sync(self) -> bool:
        return all(set(one.replicas) == set(one.isrs) for one in self.partitions().values())


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCluster]:
    skip_if_java_is_left_out()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = KafkaCluster(tmp_path)
    with contextlib.ExitStack() as stack:
        for node in found.nodes.values():
            stack.callback(node.stop)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda n: found.nodes[n].start(), (1, 2, 3)))
        yield found


def fill(cluster: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 3, 2)])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(60):
        producer.produce(TOPIC, b"x" * 100_000, partition=number % 3)
    assert producer.flush(60) == 0


def start_and_kill(cluster: KafkaCluster, command: list[str]) -> None:
    """Kill the command as soon as a partition moves."""
    words = [sys.executable, "-m", "millstream", *command, "-b", cluster.bootstrap]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: len(cluster.replicas()[0]) == 3, "the move has begun")
        finally:
            process.kill()


@pytest.mark.timeout(600)
def test_a_cluster_of_kafka_is_operated(cluster: KafkaCluster) -> None:
    fill(cluster)
    wait_until(cluster.in_sync, "all are in sync")
    cluster.ran("cluster", "health")
    _a_move_is_cancelled_or_continued(cluster)
    _a_node_is_added_and_another_removed(cluster)
    _a_dead_node_is_a_problem_until_it_is_back(cluster)


def _a_move_is_cancelled_or_continued(cluster: KafkaCluster) -> None:
    before = cluster.replicas()[0]
    [other] = {1, 2, 3} - set(before)
    target = f"{before[0]},{other}"
    move = ["cluster", "reassign", f"{TOPIC}:0", "--to", target, "-y", "--mb-per-second"]
    start_and_kill(cluster, [*move, "0.2"])
    assert "is moving to other nodes" in cluster.ran("cluster", "health").output
    cluster.ran("cluster", "reassign", "--cancel", "-y")
    assert sorted(cluster.replicas()[0]) == sorted(before)
    assert "throttled" not in cluster.ran("topic", "describe", TOPIC).output
    start_and_kill(cluster, [*move, "0.2"])
    cluster.ran(*move, "500")
    assert sorted(cluster.replicas()[0]) == sorted([before[0], other])
    assert "throttled" not in cluster.ran("topic", "describe", TOPIC).output


def _a_node_is_added_and_another_removed(cluster: KafkaCluster) -> None:
    cluster.nodes[4].start()
    planned = cluster.ran("cluster", "rebalance", code=1)
    assert "requires -y" in planned.errors
    cluster.ran("cluster", "rebalance", "--yes")
    held = json.loads(cluster.ran("cluster", "describe", "--json").output)["nodes"]
    assert {node["id"]: node["replicas"] for node in held}[4] >= 1, "the new node has its share"
    cluster.ran("cluster", "decommission", "3", "--yes")
    assert all(3 not in some for some in cluster.replicas().values())


def _a_dead_node_is_a_problem_until_it_is_back(cluster: KafkaCluster) -> None:
    cluster.nodes[3].stop()
    victim = cluster.nodes[4]
    victim.kill()
    found: list[Ran] = []
    health = partial(run_millstream, "cluster", "health", bootstrap=cluster.bootstrap)

    def is_told() -> bool:
        found.append(health())
        return "node 4 is not alive" in found[-1].output

    wait_until(is_told, "the dead node is a problem")
    assert found[-1].exit_code == 1
    victim.start()
    wait_until(cluster.in_sync, "the node is back")
    cluster.ran("cluster", "elect", "--yes")
    assert all(one.leader == one.replicas[0] for one in cluster.partitions().values())
    assert health().exit_code == 0
