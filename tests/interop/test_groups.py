"""Groups as tools that we did not write see them, and going back over the same records."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.jars import classpath
from tests.support.node import MillstreamNode
from tests.support.tools import require, run_checked, skip_if_java_is_left_out

RECORDS = 60
PARTITIONS = 3
Bytes = dict[tuple[int, int], tuple[bytes, bytes, int]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MillstreamNode]:
    data_dir = tmp_path_factory.mktemp("groups") / "data"
    with MillstreamNode(data_dir, "--dev", "--set", "offsets.topic.num.partitions=4") as running:
        yield running


def admin_of(node: MillstreamNode) -> AdminClient:
    return _admin_at(node.bootstrap)


@cache
def _admin_at(bootstrap: str) -> AdminClient:
    # Kept: a client that is collected takes its unfinished calls with it.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def filled_topic(node: MillstreamNode) -> str:
    """A topic with records a second apart, over all partitions."""
    name = f"t-{uuid.uuid4()}"
    for created in admin_of(node).create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        created.result(20)
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    base_ms = int(time.time() * 1000) - RECORDS * 1000
    for number in range(RECORDS):
        producer.produce(
            name,
            key=f"k{number}".encode(),
            value=bytes([number]) * (number + 1),
            partition=number % PARTITIONS,
            timestamp=base_ms + number * 1000,
        )
    assert producer.flush(20) == 0
    return name


def consumer_of(node: MillstreamNode, group: str, protocol: str = "classic") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def read(consumer: Consumer, count: int) -> Bytes:
    found: Bytes = {}
    give_up = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < give_up, f"{len(found)} of {count} records"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        place = (message.partition(), message.offset())
        assert place not in found, f"{place} came twice"
        found[place] = (message.key(), message.value(), message.timestamp()[1])
    return found


def read_and_commit(node: MillstreamNode, group: str, topic: str, count: int) -> Bytes:
    consumer = consumer_of(node, group)
    consumer.subscribe([topic])
    found = read(consumer, count)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def by_offset(node: MillstreamNode, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, 7) for partition in range(PARTITIONS)]


def to_earliest(node: MillstreamNode, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]


def by_time(node: MillstreamNode, topic: str) -> list[TopicPartition]:
    """Half a minute back: the newer half of the records."""
    at_ms = int(time.time() * 1000) - 30_000
    consumer = consumer_of(node, "lookup")
    try:
        return consumer.offsets_for_times(
            [TopicPartition(topic, partition, at_ms) for partition in range(PARTITIONS)], timeout=20
        )
    finally:
        consumer.close()


@pytest.mark.parametrize("choose", [by_offset, to_earliest, by_time])
def test_a_group_that_is_set_back_reads_the_same_bytes_again(
    node: MillstreamNode, choose: Callable[[MillstreamNode, str], list[TopicPartition]]
) -> None:
    topic = filled_topic(node)
    group = f"g-{uuid.uuid4()}"
    everything = read_and_commit(node, group, topic, RECORDS)
    back = choose(node, topic)
    wanted = ConsumerGroupTopicPartitions(group, back)
    for changed in admin_of(node).alter_consumer_group_offsets([wanted]).values():
        changed.result(20)
    starts = {each.partition: each.offset for each in back}
    expected = {place: data for place, data in everything.items() if place[1] >= starts[place[0]]}
    assert 0 < len(expected) <= RECORDS
    assert read_and_commit(node, group, topic, len(expected)) == expected


def test_metadata_and_leader_epochs_come_back_as_they_were_committed(node: MillstreamNode) -> None:
    topic = filled_topic(node)
    consumer = consumer_of(node, f"g-{uuid.uuid4()}")
    noted = TopicPartition(topic, 1, 5, metadata='{"näh": "☃"}', leader_epoch=0)
    consumer.commit(offsets=[noted], asynchronous=False)
    [found] = consumer.committed([TopicPartition(topic, 1)], timeout=20)
    assert (found.offset, found.metadata, found.leader_epoch) == (5, '{"näh": "☃"}', 0)
    consumer.close()


def test_a_commit_for_a_partition_that_does_not_exist_is_refused(node: MillstreamNode) -> None:
    topic = filled_topic(node)
    consumer = consumer_of(node, f"g-{uuid.uuid4()}")
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(topic, 99, 5)], asynchronous=False)
    assert refused.value.args[0].name() == "UNKNOWN_TOPIC_OR_PART"
    consumer.close()


# -- Kafka's own tools ------------------------------------------------------------------


def run_tool(*arguments: str, timeout_seconds: float = 90) -> str:
    skip_if_java_is_left_out()
    flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    quiet = "-Dorg.apache.logging.log4j.level=ERROR"
    command = [require("java"), *flags, quiet, "-cp", classpath(), *arguments]
    return run_checked(command, timeout_seconds=timeout_seconds)


def formatted(node: MillstreamNode, formatter: str, group: str) -> list[dict[str, Any]]:
    """What one of Kafka's formatters prints of a group. The tool gives up when nothing comes
    for three seconds, which a busy machine may need to begin: then once more."""
    for _ in range(5):
        rows = [
            row
            for row in printed_rows(node, formatter)
            if row["key"]["data"]["group"] == group and row["value"] is not None
        ]
        if rows:
            return rows
    raise AssertionError(f"{formatter} prints nothing of {group}")


def printed_rows(node: MillstreamNode, formatter: str) -> list[dict[str, Any]]:
    """`__consumer_offsets` as it is printed."""
    output = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", "__consumer_offsets"),
        *("--from-beginning", "--timeout-ms", "3000", "--formatter", formatter),
    )
    # One object behind the other, between the tool's own words.
    read_value = json.JSONDecoder().raw_decode
    rows, position = [], max(output.find("{"), 0)
    while output.startswith("{", position):
        row, position = read_value(output, position)
        rows.append(row)
    return rows


@pytest.mark.java
def test_kafkas_formatters_print_what_we_wrote(node: MillstreamNode) -> None:
    topic = filled_topic(node)
    group = f"g-{uuid.uuid4()}"
    consumer = consumer_of(node, group)
    consumer.subscribe([topic])
    read(consumer, RECORDS)
    noted = TopicPartition(topic, 2, 11, metadata="here")
    consumer.commit(offsets=[noted], asynchronous=False)
    package = "org.apache.kafka.tools.consumer"
    [row] = formatted(node, f"{package}.OffsetsMessageFormatter", group)
    assert row["key"]["data"] == {"group": group, "topic": topic, "partition": 2}
    value = row["value"]["data"]
    # This client sends the zero byte behind its text along.
    assert (value["offset"], value["metadata"].rstrip("\0")) == (11, "here")
    assert abs(value["commitTimestamp"] - time.time() * 1000) < 60_000
    *_, last = formatted(node, f"{package}.GroupMetadataMessageFormatter", group)
    stable = last["value"]["data"]
    assert stable["protocolType"] == "consumer"
    assert len(stable["members"]) == 1
    consumer.close()


@pytest.mark.java
def test_kafkas_dump_tool_decodes_every_record_of_a_consumer_group(
    node: MillstreamNode,
) -> None:
    topic = filled_topic(node)
    group = f"g-{uuid.uuid4()}"
    consumer = consumer_of(node, group, "consumer")
    # A pattern, so that its record is written too.
    consumer.subscribe([f"^{topic[:-4]}.*"])
    read(consumer, RECORDS)
    consumer.commit(asynchronous=False)
    consumer.close()
    files = ",".join(str(path) for path in node.data_dir.glob("__consumer_offsets-*/*.log"))
    dump = "org.apache.kafka.tools.DumpLogSegments"
    text = run_tool(dump, "--offsets-decoder", "--files", files)
    lines = [line for line in text.splitlines() if group in line]
    kinds = {json.loads(part(line, "key"))["type"] for line in lines}
    assert {"1", "3", "5", "6", "7", "8", "16"} <= kinds
    assert "could not be decoded" not in text
    for line in lines:
        payload = part(line, "payload")
        assert payload == "<DELETE>" or json.loads(payload)["data"] is not None


def part(line: str, name: str) -> str:
    """The JSON after `name:` in a line of the dump."""
    rest = line.split(f" {name}: ", 1)[1]
    return rest.split(" payload: ", 1)[0].strip()


@pytest.mark.java
def test_kafkas_group_command_lists_describes_resets_and_deletes(node: MillstreamNode) -> None:
    topic = filled_topic(node)
    group = f"g-{uuid.uuid4()}"
    read_and_commit(node, group, topic, RECORDS)

    def command(*arguments: str) -> str:
        name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        return run_tool(name, "--bootstrap-server", node.bootstrap, *arguments)

    assert group in command("--list", "--state", "empty")
    described = command("--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert {(row[2], row[3], row[4], row[5]) for row in rows} == {
        (str(partition), "20", "20", "0") for partition in range(PARTITIONS)
    }
    command("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    consumer = consumer_of(node, group)
    found = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=20)
    assert {each.offset for each in found} == {0}
    consumer.close()
    command("--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    command("--delete", "--group", group)
    assert group not in command("--list")


def test_a_topic_that_is_deleted_takes_its_committed_offsets_along(node: MillstreamNode) -> None:
    topic = filled_topic(node)
    group = f"g-{uuid.uuid4()}"
    read_and_commit(node, group, topic, RECORDS)
    for deleted in admin_of(node).delete_topics([topic]).values():
        deleted.result(20)
    [listed] = (
        admin_of(node).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    )
    assert listed.result(20).topic_partitions == []


def test_beginning_is_where_a_new_group_begins(node: MillstreamNode) -> None:
    topic = filled_topic(node)
    consumer = consumer_of(node, f"g-{uuid.uuid4()}")
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert min(offset for _, offset in read(consumer, 20)) == 0
    consumer.close()
