"""Kafka Streams with `group.protocol=streams`: results are right, whoever is killed."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescription,
)
from tests.support.cluster import MillstreamCluster, millstream_cluster
from tests.support.java_program import kafka_streams_command, streams_command
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

_JAVA = Path(__file__).parents[2] / "support" / "java"
# Short sessions, so that a test need not wait long for a killed member to be missed.
SETTINGS = {
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.num.standby.replicas": "1",
}
# Those of the smoke test's topology and driver.
SMOKE_TOPICS = ("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw")
SMOKE_TOPICS += ("sws-suppressed", "cnt", "avg", "tagg", "fk")


OPTIONS = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MillstreamNode]:
    with MillstreamNode(tmp_path / "data", "--dev", *OPTIONS) as running:
        yield running


def create_topics(bootstrap: str, partitions: int, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        created.result(20)


class Instances:
    """Processes of one application, each with its own state directory."""

    def __init__(self, folder: Path, bootstrap: str, **options: str) -> None:
        """Underscores of option names stand for dots."""
        self._folder = folder
        self._options = {
            "bootstrap.servers": bootstrap,
            "group.protocol": "streams",
            "num.stream.threads": "2",
            "commit.interval.ms": "100",
            "auto.offset.reset": "earliest",
            "transaction.timeout.ms": "10000",
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Instances":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._running):
            self.kill(name)

    def start(self, name: str, command: list[str], *arguments: str) -> None:
        file = self._folder / f"{name}.properties"
        options = {**self._options, "state.dir": str(self._folder / name)}
        file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        with open(self._log(name), "ab") as log:
            self._running[name] = subprocess.Popen(
                [*command, str(file), *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def output(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    def wait_for(self, name: str, text: str) -> None:
        process = self._running[name]

        def has_it() -> bool:
            assert process.poll() is None, self.output(name)[-4000:]
            return text in self.output(name)

        wait_until(has_it, f"{name} says {text}", seconds_max=90)

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def close(self, name: str) -> None:
        """Let it leave the group."""
        process = self._running.pop(name)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0, self.output(name)[-4000:]


class Words:
    """Lines that are produced, and how often each word must be counted."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self.wanted: Counter[str] = Counter()
        # Every count that was ever published, in the order of each word.
        self.published: dict[str, list[int]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "counts",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("counts", partition, 0) for partition in range(2)])

    def produce(self, lines: int) -> None:
        for number in range(lines):
            line = f"apple word{number % 40} pear"
            self.wanted.update(line.split())
            self._producer.produce("lines", line, key=str(number))
        assert self._producer.flush(60) == 0

    def wait_until_counted(self) -> None:
        wait_until(self._are_counted, "all words are counted", seconds_max=90)

    def _are_counted(self) -> bool:
        while (message := self._consumer.poll(0.2)) is not None:
            if message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                counts = self.published.setdefault(key.decode(), [])
                counts.append(int.from_bytes(value, "big"))
        last = {word: counts[-1] for word, counts in self.published.items()}
        return last.keys() == self.wanted.keys() and all(
            last[word] >= count for word, count in self.wanted.items()
        )

    def check_exactly_once(self) -> None:
        self._consumer.close()
        assert {word: counts[-1] for word, counts in self.published.items()} == self.wanted
        # No count is published twice, and none goes back.
        assert all(counts == sorted(set(counts)) for counts in self.published.values())


def describe(bootstrap: str, group: str) -> StreamsGroupDescription:
    with RawClient(bootstrap) as client:
        request = StreamsGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )
        [found] = client.ask(request, 0).groups
        return found


def wait_until_stable(bootstrap: str, group: str, *, members: int) -> StreamsGroupDescription:
    def is_stable() -> bool:
        found = describe(bootstrap, group)
        return (found.group_state, len(found.members)) == ("Stable", members)

    wait_until(is_stable, f"{group} is stable with {members} members", seconds_max=90)
    return describe(bootstrap, group)


def test_words_are_counted_exactly_once_whoever_is_killed(
    node: MillstreamNode, tmp_path: Path
) -> None:
    create_topics(node.bootstrap, 4, "lines")
    create_topics(node.bootstrap, 2, "counts")
    command = streams_command(_JAVA / "WordCount.java")
    words = Words(node.bootstrap)
    options = {"application_id": "words", "processing_guarantee": "exactly_once_v2"}
    with Instances(tmp_path, node.bootstrap, **options) as instances:
        instances.start("first", command, "lines", "counts")
        instances.wait_for("first", "RUNNING")
        words.produce(1_000)
        instances.start("second", command, "lines", "counts")
        instances.wait_for("second", "RUNNING")
        shared = wait_until_stable(node.bootstrap, "words", members=4)
        tasks = [
            (row.subtopology_id, partition)
            for member in shared.members
            for row in member.assignment.active_tasks
            for partition in row.partitions
        ]
        assert sorted(tasks) == [(each, partition) for each in "01" for partition in range(4)]
        standbys = [row for member in shared.members for row in member.assignment.standby_tasks]
        assert sum(len(row.partitions) for row in standbys) == 4
        words.produce(1_000)
        instances.kill("first")
        words.produce(1_000)
        words.wait_until_counted()
        wait_until_stable(node.bootstrap, "words", members=2)
        node.kill()
        node.start()
        words.produce(1_000)
        words.wait_until_counted()
        instances.close("second")
        assert describe(node.bootstrap, "words").group_state == "Empty"
    words.check_exactly_once()


def coordinator_of(cluster: MillstreamCluster, group: str) -> int:
    for node in cluster.nodes.values():
        if node.is_running:
            with RawClient(node.bootstrap) as client:
                request = FindCoordinatorRequest(key="", coordinator_keys=[group])
                [found] = client.ask(request, 4).coordinators
                return found.node_id
    raise AssertionError("no node is alive")


def test_words_are_counted_exactly_once_while_coordinators_die(tmp_path: Path) -> None:
    command = streams_command(_JAVA / "WordCount.java")
    options = {
        "application_id": "words",
        "processing_guarantee": "exactly_once_v2",
        "replication_factor": "3",
    }
    with millstream_cluster(tmp_path / "cluster", *OPTIONS) as cluster:
        cluster.create_topic("lines", 4)
        cluster.create_topic("counts", 2)
        words = Words(cluster.bootstrap)
        with Instances(tmp_path, cluster.bootstrap, **options) as instances:
            for name in ("first", "second"):
                instances.start(name, command, "lines", "counts")
            for name in ("first", "second"):
                instances.wait_for(name, "RUNNING")
            for _ in range(2):
                words.produce(500)
                node_id = coordinator_of(cluster, "words")
                cluster.nodes[node_id].kill()
                words.produce(500)
                words.wait_until_counted()
                cluster.nodes[node_id].start()
                cluster.wait_until_in_sync("lines")
            for name in ("first", "second"):
                instances.close(name)
        words.check_exactly_once()


def test_the_smoke_test_of_kafka_streams(node: MillstreamNode, tmp_path: Path) -> None:
    create_topics(node.bootstrap, 5, *SMOKE_TOPICS)
    command = kafka_streams_command("org.apache.kafka.streams.tests.StreamsSmokeTest")
    with Instances(tmp_path, node.bootstrap, processing_guarantee="exactly_once_v2") as instances:
        for name in ("first", "second"):
            instances.start(name, command, "process")
        for name in ("first", "second"):
            instances.wait_for(name, "SMOKE-TEST-CLIENT-STARTED")
        driver = subprocess.Popen(
            [*streams_command(_JAVA / "StreamsSmoke.java"), node.bootstrap, "12"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_stable(node.bootstrap, "SmokeTest", members=4)
            instances.kill("first")
            instances.start("third", command, "process")
            output, _ = driver.communicate(timeout=200)
        finally:
            driver.kill()
            driver.wait()
        text = output.decode(errors="replace")
        assert text.rstrip().endswith("PASSED"), text[-4000:]
        for name in ("second", "third"):
            assert "SMOKE-TEST-CLIENT-EXCEPTION" not in instances.output(name)
