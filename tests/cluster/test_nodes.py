"""A cluster as users start it: ZooKeeper and three processes.

Covers broker, cluster, cli/cluster.py, cli/cluster_start.py.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from kazoo.client import KazooClient

from millstream.cluster.stores.embedded import FILE_NAME
from millstream.errors import KafkaCode
from millstream.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from millstream.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.command_line import run_millstream
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.tools import skip_if_java_is_left_out
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]


class Running:
    def __init__(self, folder: Path) -> None:
        skip_if_java_is_left_out()
        self._folder = folder
        command = [sys.executable, "-m", "millstream", "cluster", "start", "--nodes", "3"]
        self.process = subprocess.Popen(
            [*command, "--data-dir", str(folder), "--dev"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("bootstrap "), (line, self.logs())
        self.bootstrap = line.split()[1]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))

    def option(self, name: str) -> str:
        """As the first node was started with it."""
        words = Path(f"/proc/{self.pid_of(1)}/cmdline").read_text().split("\0")
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    def pid_of(self, number: int) -> int:
        directory = str(self._folder / f"node-{number}")
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode().split("\0")
                except OSError:
                    continue
                if directory in words and "broker" in words:
                    return int(entry.name)
        raise AssertionError(f"node {number} does not run")

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("cluster"))
    try:
        # It has said that it is ready.
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        admin.create_topics([NewTopic("at-once", 1, 3)])["at-once"].result(20)
        # Each serves as soon as it can, and hears of the others a moment later.
        wait_until(lambda: all(map(knows_all, found.bootstrap.split(","))), "all know each other")
        yield found
    finally:
        code = found.stop()
    assert code == 0, found.logs()


def knows_all(address: str) -> bool:
    metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=20)
    return sorted(metadata.brokers) == [1, 2, 3]


def create(admin: AdminClient, name: str) -> None:
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(name, 3, 3, config=config)])[name].result(20)


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda e, m: failures.append(e) if e else None)
    assert producer.flush(60) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> set[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: set[bytes] = set()

    def has_all() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.add(message.value())
        return len(found) == count

    wait_until(has_all, f"{count} records are read", seconds_max=60)
    consumer.close()
    return found


def test_every_node_tells_of_every_other(running: Running) -> None:
    for address in running.bootstrap.split(","):
        metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=20)
        assert sorted(metadata.brokers) == [1, 2, 3]
        assert metadata.controller_id in (1, 2, 3)


def test_groups_and_offsets_are_mirrored_by_default(running: Running) -> None:
    create(AdminClient({"bootstrap.servers": running.bootstrap}), "mirrored")
    produce(running.bootstrap, "mirrored", [b"one", b"two"])
    consume(running.bootstrap, "mirrored", 2)
    path = running.option("millstream.zookeeper.digest").removeprefix("${file:").removesuffix("}")
    zookeeper = KazooClient(
        running.option("zookeeper.connect"),
        auth_data=[("digest", Path(path).read_text().strip())],
    )
    zookeeper.start(timeout=20)
    try:
        offsets = "/consumers/readers-of-mirrored/offsets/mirrored"

        def are_there() -> bool:
            if not zookeeper.exists(offsets):
                return False
            found = [zookeeper.get(f"{offsets}/{n}")[0] for n in zookeeper.get_children(offsets)]
            return sum(map(int, found)) == 2

        wait_until(are_there, "the committed offsets are in ZooKeeper", seconds_max=60)
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_a_partition_moves_to_other_nodes_and_back_to_its_first(running: Running) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    new = NewTopic("moved", num_partitions=1, replica_assignment=[[1]])
    admin.create_topics([new])["moved"].result(20)
    values = [b"%d" % number for number in range(200)]
    produce(running.bootstrap, "moved", values)

    def partition() -> PartitionMetadata:
        return admin.list_topics("moved", timeout=20).topics["moved"].partitions[0]

    with RawClient(running.bootstrap.split(",")[2]) as client:
        wanted = ReassignablePartition(partition_index=0, replicas=[2, 3])
        moved = client.ask(
            AlterPartitionReassignmentsRequest(
                timeout_ms=10_000,
                allow_replication_factor_change=True,
                topics=[ReassignableTopic(name="moved", partitions=[wanted])],
            ),
            1,
        )
        assert moved.responses[0].partitions[0].error_code == KafkaCode.NONE

        def has_moved() -> bool:
            # In one look: the next may ask a node that knows less.
            now = partition()
            return sorted(now.isrs) == sorted(now.replicas) == [2, 3]

        wait_until(has_moved, "the new replicas are in sync")

        def is_nothing_moving() -> bool:
            # Each node answers from what it knows, and may learn of it later than another.
            listed = client.ask(ListPartitionReassignmentsRequest(timeout_ms=1_000, topics=None), 0)
            return listed.topics == []

        wait_until(is_nothing_moving, "the move is over")
        elected = client.ask(
            ElectLeadersRequest(
                election_type=0,
                topic_partitions=[ElectLeadersTopic(topic="moved", partitions=[0])],
                timeout_ms=10_000,
            ),
            2,
        )
        (result,) = elected.replica_election_results[0].partition_result
        assert result.error_code in (KafkaCode.NONE, KafkaCode.ELECTION_NOT_NEEDED)
    wait_until(lambda: partition().leader == 2, "the first of the replicas leads")
    assert consume(running.bootstrap, "moved", 200) == set(values)


def test_a_killed_leader_is_replaced_before_its_session_ends(running: Running) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    create(admin, "killed")
    before = [b"before %d" % number for number in range(300)]
    produce(running.bootstrap, "killed", before)
    metadata = admin.list_topics("killed", timeout=20).topics["killed"]
    victim = metadata.partitions[0].leader
    others = [n for n in (1, 2, 3) if n != victim]
    os.kill(running.pid_of(victim), signal.SIGKILL)

    # librdkafka might ask the one that died, and wait for it as long as it may.
    with RawClient(running.bootstrap.split(",")[others[0] - 1]) as client:

        def is_replaced() -> bool:
            wanted = [MetadataRequestTopic(name="killed")]
            answer = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 4)
            return all(part.leader_id in others for part in answer.topics[0].partitions)

        wait_until(is_replaced, "the others lead", seconds_max=30)
    assert re.search(rf"node {victim} is dead: its port refuses", running.logs())
    after = [b"after %d" % number for number in range(300)]
    produce(running.bootstrap, "killed", after)
    assert consume(running.bootstrap, "killed", 600) == {*before, *after}

    # Whoever runs the cluster starts it again, where clients know it.
    def is_back() -> bool:
        with contextlib.suppress(OSError), RawClient(running.bootstrap.split(",")[victim - 1]):
            return True
        return False

    wait_until(is_back, f"node {victim} is back", seconds_max=60)


def is_in_zookeeper(address: str, path: str) -> bool:
    client = KazooClient(address)
    client.start(20)
    try:
        return client.exists(path) is not None
    finally:
        client.stop()
        client.close()


def test_a_single_node_becomes_a_cluster(tmp_path: Path, zookeeper_of_spark: str) -> None:
    data = tmp_path / "data"
    with MillstreamNode(data, "--dev") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("kept", 2, 1)])["kept"].result(20)
        produce(node.bootstrap, "kept", [b"one", b"two", b"three"])
    where = f"{zookeeper_of_spark}/adopted"
    refused = run_millstream(
        *("broker", "--data-dir", str(data), "--listen", "127.0.0.1:0"),
        *("--set", f"zookeeper.connect={where}"),
    )
    assert refused.exit_code == 1
    assert "cluster adopt" in refused.errors
    dry = run_millstream("cluster", "adopt", "--data-dir", str(data), "--zookeeper", where)
    assert "topic kept: 2 partitions" in dry.output
    assert (data / FILE_NAME).exists()
    assert not is_in_zookeeper(zookeeper_of_spark, "/adopted")
    done = run_millstream(
        "cluster", "adopt", "--data-dir", str(data), "--zookeeper", where, "--apply"
    )
    assert done.exit_code == 0, done.errors
    small = ["--set", "offsets.topic.replication.factor=1"]
    with MillstreamNode(data, "--dev", "--set", f"zookeeper.connect={where}", *small) as node:
        assert consume(node.bootstrap, "kept", 3) == {b"one", b"two", b"three"}
        produce(node.bootstrap, "kept", [b"four"])
    alone = run_millstream("broker", "--data-dir", str(data), "--listen", "127.0.0.1:0")
    assert alone.exit_code == 1
    assert "belongs to a cluster node" in alone.errors


def test_a_zookeeper_that_is_not_there_is_waited_for_and_then_told(tmp_path: Path) -> None:
    refused = run_millstream(
        *("broker", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
        *("--set", "zookeeper.connect=127.0.0.1:1"),
        *("--set", "zookeeper.connection.timeout.ms=300"),
    )
    assert refused.exit_code == 1
    waiting, last = refused.errors.splitlines()[-2:]
    assert "no ZooKeeper answers at 127.0.0.1:1 yet; trying for 0.3 s" in waiting
    assert last.startswith("millstream: no ZooKeeper answers at")
    assert "Traceback" not in refused.errors


def test_the_second_node_of_one_id_waits_and_then_says_who_has_it(
    tmp_path: Path, zookeeper_of_spark: str
) -> None:
    options = [
        *("--dev", "--set", f"zookeeper.connect={zookeeper_of_spark}/twins"),
        # Waited for once; the first must not lose its session because the machine is busy.
        *("--set", "zookeeper.session.timeout.ms=4000"),
    ]
    with MillstreamNode(tmp_path / "first", *options) as first:
        second = run_millstream(
            "broker", "--data-dir", str(tmp_path / "second"), "--listen", "127.0.0.1:0", *options
        )
        assert second.exit_code == 1
        assert "node 1 is registered already" in second.errors
        assert second.errors.splitlines()[-1].startswith(
            f"millstream: another node has the id 1 at {first.bootstrap}"
        )
        AdminClient({"bootstrap.servers": first.bootstrap}).list_topics(timeout=20)


def test_zookeeper_for_development_starts_and_stops(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "millstream", "zookeeper", "--listen", "127.0.0.1:0"),
            *("--data-dir", str(tmp_path / "zookeeper")),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        assert process.stdout is not None
        assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+\n", process.stdout.readline())
        process.terminate()
        assert process.wait(30) == 0


def test_a_start_that_waits_can_be_stopped(tmp_path: Path, zookeeper_of_spark: str) -> None:
    options = ["--dev", "--set", f"zookeeper.connect={zookeeper_of_spark}/waiting"]
    with MillstreamNode(tmp_path / "first", *options):
        errors = tmp_path / "second.stderr"
        with open(errors, "wb") as output:
            second = subprocess.Popen(
                [
                    *(sys.executable, "-m", "millstream", "broker", "--listen", "127.0.0.1:0"),
                    *("--data-dir", str(tmp_path / "second"), *options),
                ],
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        wait_until(lambda: b"registered already" in errors.read_bytes(), "the second one waits")
        second.terminate()
        assert second.wait(20) == 0
