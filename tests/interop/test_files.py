"""Our files are Kafka's files: its tools read ours, and we take over its directories.

With --against-kafka, Apache Kafka takes Millstream's part, which proves the tests.
"""

import hashlib
import re
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.interop.clients.base import CODECS, Message
from tests.interop.clients.confluent import ConfluentKafka
from tests.support.apache_kafka import ApacheKafka, dump_log_segments
from tests.support.command_line import run_millstream
from tests.support.node import MillstreamNode
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

Node = AbstractContextManager[ApacheKafka | MillstreamNode]
StartNode = Callable[[Path, dict[str, str]], Node]

YEAR_2001_MS = 978_307_200_000
# Small segments and dense indexes: more files and entries for the tools to check.
SMALL_SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "2048"}
RETENTION_ROUNDS = 10


@pytest.fixture
def start_node(request: pytest.FixtureRequest) -> StartNode:
    """Start the broker under test on a directory, adopting it if it is Kafka's."""
    against_kafka = request.config.getoption("--against-kafka")

    def start(data_dir: Path, settings: dict[str, str]) -> Node:
        if against_kafka:
            return ApacheKafka(data_dir, settings=settings)
        options = [
            part for name, value in settings.items() for part in ("--set", f"{name}={value}")
        ]
        return MillstreamNode(data_dir, "--adopt", *options)

    return start


class TestOurDirectory:
    """A directory that our broker wrote, as Kafka's DumpLogSegments sees it."""

    @pytest.fixture(scope="class")
    def partition_dir(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Path:
        data_dir = tmp_path_factory.mktemp("ours") / "data"
        node: ApacheKafka | MillstreamNode = (
            ApacheKafka(data_dir)
            if request.config.getoption("--against-kafka")
            else MillstreamNode(data_dir)
        )
        with node:
            # Small batches, so that every segment has many and its index has entries.
            client = ConfluentKafka(node.bootstrap, batch_bytes_max=20_000)
            client.create_topic("mixed", configs=SMALL_SEGMENTS)
            for _ in range(3):
                for codec in CODECS:
                    client.produce("mixed", varied_messages(), codec=codec)
        return data_dir / "mixed-0"

    def test_every_record_of_every_codec_is_valid(self, partition_dir: Path) -> None:
        logs = sorted(partition_dir.glob("*.log"))
        assert len(logs) > 1, "the test wants several segments"
        output = dump_log_segments(logs)
        assert "isvalid: false" not in output
        found = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
        assert found == list(range(len(varied_messages()) * 3 * len(CODECS)))
        assert {*re.findall(r"compresscodec: (\w+)", output)} == {*CODECS}

    def test_the_indexes_pass_the_sanity_check(self, partition_dir: Path) -> None:
        files = sorted([*partition_dir.glob("*.index"), *partition_dir.glob("*.timeindex")])
        output = dump_log_segments(files, index_sanity=True)
        for file in files:
            assert f"{file} passed sanity check" in output

    def test_the_indexes_agree_with_the_log(self, partition_dir: Path) -> None:
        files = sorted([*partition_dir.glob("*.index"), *partition_dir.glob("*.timeindex")])
        output = dump_log_segments(files)
        assert output.count("offset: ") > len(files), "the test wants indexes with entries"
        # The tool reports what is wrong in plain sentences and still exits with 0.
        complaints = re.findall(
            r"(?i)^.*(?:mismatch|non-consecutive|out of order|not found|error).*$", output, re.M
        )
        assert complaints == []

    def test_our_check_finds_nothing_wrong_either(self, partition_dir: Path) -> None:
        ran = run_millstream("storage", "verify", str(partition_dir.parent))
        assert (ran.exit_code, ran.output) == (0, "")

    def test_the_producer_snapshots_are_readable(self, partition_dir: Path) -> None:
        snapshots = sorted(partition_dir.glob("*.snapshot"))
        assert snapshots, "a clean stop leaves a snapshot"
        output = dump_log_segments(snapshots[-1:])
        # Each produce call above was a producer of its own.
        assert len(set(re.findall(r"producerId: (\d+)", output))) == 3 * len(CODECS)


class TestKafkaDirectory:
    """A directory that Apache Kafka wrote, taken over, used, and given back."""

    @pytest.fixture
    def data_dir(self, kafkas_dir: Path, tmp_path: Path) -> Path:
        """A copy for each test, because writing one takes Kafka many seconds."""
        return shutil.copytree(kafkas_dir, tmp_path / "kafka-data")

    @pytest.fixture(scope="class")
    def kafkas_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        directory = tmp_path_factory.mktemp("kafkas") / "data"
        with ApacheKafka(directory) as kafka:
            client = ConfluentKafka(kafka.bootstrap)
            client.create_topic("orders")
            for codec in CODECS:
                client.produce("orders", orders(codec), codec=codec)
            client.create_topic("forever", configs={"retention.ms": "-1", **SMALL_SEGMENTS})
            client.produce("forever", old_messages())
            client.create_topic("table", configs={"cleanup.policy": "compact"})
            client.produce("table", table_rows())
        return directory

    def test_our_check_finds_nothing_wrong_in_it(self, data_dir: Path) -> None:
        ran = run_millstream("storage", "verify", str(data_dir))
        assert (ran.exit_code, ran.output) == (0, "")

    def test_without_consent_nothing_is_changed(
        self, data_dir: Path, request: pytest.FixtureRequest
    ) -> None:
        if request.config.getoption("--against-kafka"):
            pytest.skip("Kafka asks nobody before it opens its own directory")
        before = digests(data_dir)
        ran = run_millstream("broker", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0")
        assert ran.exit_code == 1
        assert "--adopt" in ran.errors + ran.output
        assert "forever" in ran.errors + ran.output, "the plan names the topics"
        assert "Traceback" not in ran.errors
        assert digests(data_dir) == before

    def test_records_survive_retention_here_and_kafka_opens_the_directory_again(
        self, data_dir: Path, start_node: StartNode
    ) -> None:
        settings = {"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "0"}
        with start_node(data_dir, settings) as node:
            client = ConfluentKafka(node.bootstrap)
            check_kafkas_records(client)
            assert client.topic_configs("forever")["retention.ms"] == "-1"
            assert client.topic_configs("table")["cleanup.policy"] == "compact"
            wait_for_retention_rounds(client, RETENTION_ROUNDS)
            check_kafkas_records(client)
            count = len(orders("")) * len(CODECS)
            assert client.produce("orders", [Message(b"from the middle")]) == [count]
        with ApacheKafka(data_dir) as kafka:
            client = ConfluentKafka(kafka.bootstrap)
            check_kafkas_records(client)
            [added] = client.consume("orders", count=1, offset=count)
            assert added.value == b"from the middle"
            assert client.produce("orders", [Message(b"from Kafka again")]) == [count + 1]


def check_kafkas_records(client: ConfluentKafka) -> None:
    sent = [message for codec in CODECS for message in orders(codec)]
    received = client.consume("orders", count=len(sent))
    assert [(m.key, m.value, m.headers) for m in received] == [
        (m.key, m.value, m.headers) for m in sent
    ]
    old = client.consume("forever", count=len(old_messages()))
    assert [(m.value, m.timestamp_ms) for m in old] == [
        (m.value, m.timestamp_ms) for m in old_messages()
    ]
    rows = client.consume("table", count=len(table_rows()))
    assert {m.key: m.value for m in rows} == {m.key: m.value for m in table_rows()}


def wait_for_retention_rounds(client: ConfluentKafka, rounds: int) -> None:
    """Watch a topic whose records expire at once: each emptying is one round seen."""
    canary = f"canary-{uuid.uuid4().hex[:8]}"
    client.create_topic(canary, configs={"retention.ms": "1"})
    admin = AdminClient({"bootstrap.servers": client.bootstrap, "log_level": 0})
    old_ms = int(time.time() * 1000) - 60_000
    for count in range(1, rounds + 1):
        client.produce(canary, [Message(b"gone soon", timestamp_ms=old_ms)])
        wait_until(
            lambda end=count: earliest_offset(admin, canary) == end,  # type: ignore[misc]
            "retention emptied the canary topic",
        )


def earliest_offset(admin: AdminClient, topic: str) -> int:
    [answer] = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    return int(answer.result(10).offset)


def varied_messages() -> list[Message]:
    return [
        Message(
            value=None if i % 50 == 0 else (b"%d " % i) * (i % 400),
            key=None if i % 7 == 1 else b"key %d" % i,
            headers=(("number", b"%d" % i), ("null", None)) if i % 3 == 0 else (),
        )
        for i in range(1500)
    ]


def orders(codec: str) -> list[Message]:
    return [
        Message(f"{codec} {i}".encode() * 10, key=b"%d" % i, headers=(("codec", codec.encode()),))
        for i in range(40)
    ]


def old_messages() -> list[Message]:
    # Over a megabyte, so that whole segments are closed and retention could take them.
    return [Message(b"%04d" % i * 1000, timestamp_ms=YEAR_2001_MS + i) for i in range(600)]


def table_rows() -> list[Message]:
    return [Message(b"row %d" % i, key=b"%d" % i, timestamp_ms=YEAR_2001_MS) for i in range(30)]


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
