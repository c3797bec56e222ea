"""Kafka's own admin tools, and clients, against three of our nodes."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.cluster import MillstreamCluster
from tests.support.command_line import run_millstream
from tests.support.jars import classpath
from tests.support.node import MillstreamNode
from tests.support.tools import require, run_checked
from tests.support.waiting import wait_until
from tests.support.zookeeper import zookeeper_server

pytestmark = pytest.mark.java

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SECONDS_MAX = 60


@contextlib.contextmanager
def running(folder: Path) -> Iterator[MillstreamCluster]:
    """Three nodes in racks of their own."""
    with zookeeper_server(folder / "zookeeper") as zookeeper:
        settings = {
            "zookeeper.connect": zookeeper.address,
            "replica.selector.class": RACK_AWARE,
            # Else what a test moved by hand is moved back while it looks.
            "auto.leader.rebalance.enable": "false",
        }
        nodes = {}
        for node_id in (1, 2, 3):
            own = {**settings, "node.id": str(node_id), "broker.rack": f"rack-{node_id}"}
            flags = [word for name in own for word in ("--set", f"{name}={own[name]}")]
            nodes[node_id] = MillstreamNode(folder / f"node-{node_id}", "--dev", *flags)
        cluster = MillstreamCluster(nodes, zookeeper.process.pid)
        try:
            cluster.start()
            yield cluster
            cluster.stop()
        finally:
            cluster.kill_all()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MillstreamCluster]:
    with running(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def tool(cluster: MillstreamCluster, name: str, *arguments: str) -> str:
    flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [require("java"), *flags, "-cp", classpath(), name]
    return run_checked(
        [*command, "--bootstrap-server", cluster.bootstrap, *arguments], timeout_seconds=SECONDS_MAX
    )


def described(text: str) -> dict[tuple[str, int], dict[str, str]]:
    """What TopicCommand says of each partition."""
    lines = [line for line in text.splitlines() if line.startswith("\t")]
    found = [dict(re.findall(r"(\w+): ([^\t]*)", line)) for line in lines]
    return {(one["Topic"], int(one["Partition"])): one for one in found}


def produce(cluster: MillstreamCluster, topic: str, *, count: int, value_bytes: int = 10) -> None:
    failures = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for _ in range(count):
        producer.produce(
            topic, b"x" * value_bytes, on_delivery=lambda e, m: failures.append(e) if e else None
        )
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == []


def plan(path: Path, topic: str, replicas: dict[int, list[int]]) -> str:
    partitions = [
        {"topic": topic, "partition": number, "replicas": some} for number, some in replicas.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def replicas(cluster: MillstreamCluster, topic: str, partition: int) -> list[int]:
    found = cluster.metadata(topic)
    return [] if found is None else list(found.topics[topic].partitions[partition].replicas)


def test_a_topic_is_described_as_it_is(cluster: MillstreamCluster) -> None:
    cluster.create_topic("described", 3, **{"min.insync.replicas": "2"})
    text = tool(cluster, TOPICS, "--describe", "--topic", "described")
    assert "PartitionCount: 3\tReplicationFactor: 3\tConfigs: min.insync.replicas=2" in text
    partitions = described(text)
    assert sorted(partitions) == [("described", number) for number in range(3)]
    leaders = cluster.leaders("described")
    for number in range(3):
        one = partitions["described", number]
        assert int(one["Leader"]) == leaders[number]
        assert (
            sorted(one["Replicas"].split(",")) == sorted(one["Isr"].split(",")) == ["1", "2", "3"]
        )
    assert sorted(leaders.values()) == [1, 2, 3]


def test_replicas_are_moved_and_the_throttle_goes(
    cluster: MillstreamCluster, tmp_path: Path
) -> None:
    cluster.create_topic("moved", 2)
    produce(cluster, "moved", count=200)
    (tmp_path / "topics.json").write_text('{"topics":[{"topic":"moved"}],"version":1}')
    generated = tool(
        cluster,
        REASSIGN,
        *("--generate", "--topics-to-move-json-file", str(tmp_path / "topics.json")),
        *("--broker-list", "1,2,3"),
    )
    proposed = json.loads(generated.rstrip().splitlines()[-1])
    assert [sorted(one["replicas"]) for one in proposed["partitions"]] == [[1, 2, 3]] * 2
    wanted = plan(tmp_path / "plan.json", "moved", {0: [2, 3], 1: [3, 1]})
    file = ("--reassignment-json-file", wanted)
    begun = tool(cluster, REASSIGN, "--execute", *file, "--throttle", "50000000")
    assert "The inter-broker throttle limit was set to 50000000 B/s" in begun
    assert "Successfully started partition reassignments for moved-0,moved-1" in begun

    def is_done() -> bool:
        text = tool(cluster, REASSIGN, "--verify", *file)
        return text.count("is completed") == 2 and "Clearing topic-level throttles" in text

    wait_until(is_done, "both are moved", seconds_max=SECONDS_MAX)
    partitions = described(tool(cluster, TOPICS, "--describe", "--topic", "moved"))
    assert [one["Replicas"] for one in partitions.values()] == ["2,3", "3,1"]
    assert [sorted(one["Isr"].split(",")) for one in partitions.values()] == [
        ["2", "3"],
        ["1", "3"],
    ]
    topic = tool(
        cluster, CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved"
    )
    assert "throttled" not in topic


def test_a_slow_move_is_listed_and_cancelled(cluster: MillstreamCluster, tmp_path: Path) -> None:
    cluster.create_topic("slow", 1)
    first = plan(tmp_path / "first.json", "slow", {0: [1]})
    tool(cluster, REASSIGN, "--execute", "--reassignment-json-file", first)
    wait_until(lambda: replicas(cluster, "slow", 0) == [1], "node 1 has it alone")
    produce(cluster, "slow", count=400, value_bytes=100_000)
    second = plan(tmp_path / "second.json", "slow", {0: [1, 2]})
    file = ("--reassignment-json-file", second)
    tool(cluster, REASSIGN, "--execute", *file, "--throttle", "1000")
    listed = tool(cluster, REASSIGN, "--list")
    assert "slow-0: replicas: 1,2. adding: 2." in listed
    assert "slow-0 is still in progress" in tool(cluster, REASSIGN, "--verify", *file)
    assert "Successfully cancelled" in tool(cluster, REASSIGN, "--cancel", *file)
    assert "No partition reassignments found" in tool(cluster, REASSIGN, "--list")
    one = described(tool(cluster, TOPICS, "--describe", "--topic", "slow"))["slow", 0]
    assert (one["Replicas"], one["Isr"]) == ("1", "1")


def test_the_preferred_leader_is_elected(cluster: MillstreamCluster, tmp_path: Path) -> None:
    cluster.create_topic("elected", 1)
    leader = cluster.leaders("elected")[0]
    preferred, third = [node for node in (1, 2, 3) if node != leader]
    order = plan(tmp_path / "order.json", "elected", {0: [preferred, leader, third]})
    tool(cluster, REASSIGN, "--execute", "--reassignment-json-file", order)
    which = ("--election-type", "preferred", "--topic", "elected", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED)" in tool(cluster, ELECT, *which)
    # The nodes hear of it one after the other.
    wait_until(lambda: cluster.leaders("elected") == {0: preferred}, "the preferred one leads")
    assert "Valid replica already elected" in tool(cluster, ELECT, *which)


def test_options_of_topics_and_nodes_are_changed_and_shown(cluster: MillstreamCluster) -> None:
    cluster.create_topic("optioned", 1)
    for entity, option in (
        (("topics", "--entity-name", "optioned"), "retention.ms=3600000"),
        (("brokers", "--entity-name", "2"), "follower.replication.throttled.rate=5000000"),
        (("brokers", "--entity-default"), "log.retention.ms=7200000"),
    ):
        tool(cluster, CONFIGS, "--alter", "--entity-type", *entity, "--add-config", option)
        shown = tool(cluster, CONFIGS, "--describe", "--entity-type", *entity)
        assert f"{option} sensitive=false" in shown
        name = option.partition("=")[0]
        tool(cluster, CONFIGS, "--alter", "--entity-type", *entity, "--delete-config", name)
        assert name not in tool(cluster, CONFIGS, "--describe", "--entity-type", *entity)


def test_every_node_tells_what_it_speaks(cluster: MillstreamCluster) -> None:
    text = tool(cluster, API_VERSIONS)
    nodes = re.findall(r"^\S+ \(id: (\d) rack: (\S+) isFenced: false\) -> \($", text, re.MULTILINE)
    assert sorted(nodes) == [(str(number), f"rack-{number}") for number in (1, 2, 3)]


def test_a_consumer_reads_from_the_replica_in_its_rack(cluster: MillstreamCluster) -> None:
    cluster.create_topic("near", 1)
    produce(cluster, "near", count=10)
    leader = cluster.leaders("near")[0]
    near = next(node for node in (1, 2, 3) if node != leader)
    read_from: set[int] = set()

    def note(statistics: str) -> None:
        partition = json.loads(statistics)["topics"].get("near", {}).get("partitions", {}).get("0")
        if partition is not None:
            read_from.add(partition["broker"])

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "near",
            "client.rack": f"rack-{near}",
            "statistics.interval.ms": 50,
            "stats_cb": note,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("near", 0, 0)])
    count = 0

    def is_read_near() -> bool:
        nonlocal count
        message = consumer.poll(0.1)
        count += message is not None and message.error() is None
        return count >= 10 and near in read_from

    wait_until(is_read_near, f"all is read, and node {near} is asked", seconds_max=SECONDS_MAX)
    consumer.close()


def test_what_a_dead_node_had_is_told_by_every_other(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        cluster.create_topic("left", 3, **{"min.insync.replicas": "2"})
        alone = plan(tmp_path / "alone.json", "left", {2: [3]})
        tool(cluster, REASSIGN, "--execute", "--reassignment-json-file", alone)
        wait_until(lambda: replicas(cluster, "left", 2) == [3], "node 3 has one for itself")
        produce(cluster, "left", count=30)
        cluster.nodes[3].kill()
        for node in (1, 2):
            admin = AdminClient({"bootstrap.servers": cluster.nodes[node].bootstrap})

            def is_gone(admin: AdminClient = admin) -> bool:
                found = admin.list_topics("left", timeout=20)
                partitions = found.topics["left"].partitions
                leaders = {partitions[number].leader for number in (0, 1)}
                return (
                    sorted(found.brokers) == [1, 2]
                    and leaders <= {1, 2}
                    and (partitions[2].leader == -1)
                )

            wait_until(is_gone, f"node {node} tells that node 3 is gone", seconds_max=SECONDS_MAX)
        lacking = described(tool(cluster, TOPICS, "--describe", "--under-replicated-partitions"))
        assert {number for topic, number in lacking if topic == "left"} == {0, 1, 2}
        at_min = described(tool(cluster, TOPICS, "--describe", "--at-min-isr-partitions"))
        assert {number for topic, number in at_min if topic == "left"} == {0, 1}
        without = described(tool(cluster, TOPICS, "--describe", "--unavailable-partitions"))
        assert list(without) == [("left", 2)]
        assert without["left", 2]["Leader"] == "none"
        shown = run_millstream("topic", "describe", "left", bootstrap=cluster.bootstrap)
        assert shown.exit_code == 0, shown.errors
        last = shown.output.splitlines()[-1].split()
        assert last == ["2", "none", "3", "none", "?", "?"]
