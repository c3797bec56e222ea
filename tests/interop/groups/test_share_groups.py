"""Covers share groups with real clients: Java's, librdkafka's, franz-go's, and Kafka's
tools."""

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jars import classpath
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.share_member import create_topic, lag_of, produce, set_group_options
from tests.support.share_workers import KINDS, Ledger, Workers
from tests.support.tools import require, skip_if_java_is_left_out
from tests.support.waiting import wait_until

PARTITIONS = 3
BATCHES = 20
BATCH = 10
TOTAL = PARTITIONS * BATCHES * BATCH
# Workers release every tenth delivery, and kills count as deliveries: with the default of 5, a
# record is given up now and then, as it should be.
OPTIONS = {"share_auto_offset_reset": "earliest", "share_delivery_count_limit": "10"}
# A partition may be assigned to dead members only, until their sessions are over.
SHORT_SESSIONS = [
    part
    for option in (
        "group.share.min.session.timeout.ms=3000",
        "group.share.session.timeout.ms=3000",
        "group.share.min.heartbeat.interval.ms=500",
        "group.share.heartbeat.interval.ms=500",
    )
    for part in ("--set", option)
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MillstreamNode]:
    with MillstreamNode(tmp_path_factory.mktemp("share") / "data") as running:
        yield running


@pytest.fixture
def topic(node: MillstreamNode) -> str:
    """With records, and a group of the same name that starts at the first."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    with RawClient(node.bootstrap) as client:
        create_topic(client, name, PARTITIONS)
        set_group_options(client, name, **OPTIONS)
        for partition in range(PARTITIONS):
            produce(client, name, *[BATCH] * BATCHES, partition=partition)
    return name


def all_records() -> set[tuple[int, int]]:
    return {(p, o) for p in range(PARTITIONS) for o in range(BATCHES * BATCH)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_every_record_is_accepted_once(
    node: MillstreamNode, topic: str, kind: str, mode: str
) -> None:
    with Workers(kind, node.bootstrap, topic, topic, count=4, mode=mode) as workers:
        ledger = workers.ledger
        wait_until(lambda: len(ledger.accepted) >= TOTAL, "all records are accepted")
    assert ledger.accepted == all_records()
    assert ledger.problems() == []
    if mode == "implicit":
        assert {one.count for one in ledger.lines} == {1}


@pytest.mark.parametrize("kind", ["java", "franz-go"])
def test_clients_get_exactly_as_many_records_as_they_want(
    node: MillstreamNode, topic: str, kind: str
) -> None:
    with Workers(
        kind, node.bootstrap, topic, topic, count=3, acquire_mode="record_limit"
    ) as workers:
        ledger = workers.ledger
        wait_until(lambda: len(ledger.accepted) >= TOTAL, "all records are accepted")
    assert ledger.problems() == []


@pytest.mark.parametrize("other", ["confluent", "franz-go"])
def test_several_kinds_of_clients_work_in_one_group(
    node: MillstreamNode, topic: str, other: str
) -> None:
    ledger = Ledger()
    with (
        Workers("java", node.bootstrap, topic, topic, ledger=ledger),
        Workers(other, node.bootstrap, topic, topic, ledger=ledger),
    ):
        wait_until(lambda: len(ledger.accepted) >= TOTAL, "all records are accepted")
    assert ledger.problems() == []


def test_what_was_accepted_survives_kill_9(tmp_path: Path) -> None:
    """Of the node, while consumers work; and of consumers, whose records others get."""
    with MillstreamNode(tmp_path / "data", *SHORT_SESSIONS) as node:
        name = "orders"
        with RawClient(node.bootstrap) as client:
            create_topic(client, name, PARTITIONS)
            set_group_options(client, name, **OPTIONS)
            for partition in range(PARTITIONS):
                produce(client, name, *[BATCH] * BATCHES, partition=partition)
        ledger = Ledger()
        victims = Workers("confluent", node.bootstrap, name, name, count=3, ledger=ledger)
        with Workers("confluent", node.bootstrap, name, name, count=3, ledger=ledger):
            wait_until(lambda: len(ledger.accepted) > TOTAL // 6, "some records are accepted")
            victims.kill()
            node.kill()
            node.start()
            wait_until(lambda: lag_of(node.bootstrap, name, name) == 0, "nothing is left")
    assert ledger.problems() == []
    # Some confirmations were lost, but no record that nobody has accepted.
    assert all_records() - ledger.said_accepted == set()


# -- Kafka's tools --------------------------------------------------------------------------


def run(*command: str, seconds: float = 90) -> str:
    skip_if_java_is_left_out()
    java = [require("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath()]
    done = subprocess.run(
        [*java, *command], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def groups_command(node: MillstreamNode, *arguments: str) -> str:
    tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    return run(tool, "--bootstrap-server", node.bootstrap, *arguments)


def test_verifiable_share_consumer(node: MillstreamNode, topic: str) -> None:
    printed = run(
        "org.apache.kafka.tools.VerifiableShareConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group-id", topic),
        *("--max-messages", str(TOTAL)),
    )
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    acknowledged = [one for one in events if one["name"] == "offsets_acknowledged"]
    assert sum(one["count"] for one in acknowledged) >= TOTAL
    assert all(one["success"] for one in acknowledged)


def test_share_consumer_performance(node: MillstreamNode, topic: str) -> None:
    printed = run(
        "org.apache.kafka.tools.ShareConsumerPerformance",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group", topic),
        *("--num-records", str(TOTAL)),
    )
    last = printed.strip().splitlines()[-1]
    assert str(TOTAL) in last, printed


def test_the_group_command(node: MillstreamNode, topic: str) -> None:
    with Workers("confluent", node.bootstrap, topic, topic, released_percent=0) as workers:
        wait_until(lambda: len(workers.ledger.accepted) >= TOTAL, "all records are accepted")
        members = groups_command(node, "--describe", "--group", topic, "--members")
        assert len(re.findall(rf"^{topic} ", members, re.MULTILINE)) == 2
    assert topic in groups_command(node, "--list").split()
    offsets = groups_command(node, "--describe", "--group", topic)
    rows = re.findall(rf"^{topic} +{topic} +(\d+) +(\d+) +(\d+)", offsets, re.MULTILINE)
    assert [(row[0], row[2]) for row in rows] == [("0", "0"), ("1", "0"), ("2", "0")]
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--topic", topic)
    groups_command(node, *reset, "--group", topic)
    offsets = groups_command(node, "--describe", "--group", topic)
    rows = re.findall(rf"^{topic} +{topic} +(\d+) +(\d+) +(\d+)", offsets, re.MULTILINE)
    assert rows == [(str(p), "0", str(BATCHES * BATCH)) for p in range(PARTITIONS)]
    assert "Successful" in groups_command(
        node, "--delete-offsets", "--group", topic, "--topic", topic
    )
    groups_command(node, "--delete", "--group", topic)
    assert topic not in groups_command(node, "--list").split()
