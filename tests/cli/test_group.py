"""`millstream group` against a node with groups of both protocols."""

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream
from tests.support.streams_member import joined_member
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

RECORDS = 6


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"offsets.topic.num.partitions": "2"}) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    """Two partitions; the first has records at 1000, 2000, ... ms."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    write(broker, name, *range(RECORDS))
    return name


def write(broker: Broker, topic: str, *numbers: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), partition=0, timestamp=(number + 1) * 1000)
    producer.flush(20)


def run(broker: Broker, *arguments: str) -> Ran:
    return run_millstream("group", *arguments, bootstrap=broker.bootstrap)


def consumer_of(broker: Broker, group: str, protocol: str = "classic") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[Message] = []

    def is_read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message)
        return len(found) == count

    wait_until(is_read, f"{count} records", seconds_max=30)
    return [message.value() for message in found]


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = consumer_of(broker, group)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_group_is_shown_and_let_alone(broker: Broker, topic: str, protocol: str) -> None:
    group = f"live-{protocol}"
    consumer = consumer_of(broker, group, protocol)
    consumer.subscribe([topic])
    read(consumer, RECORDS)
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    listed = json.loads(run(broker, "list", "--state", "Stable", "--json").output)
    [row] = [row for row in listed if row["group"] == group]
    assert (row["type"], row["state"], row["protocol_type"]) == (protocol, "Stable", "consumer")
    told = json.loads(run(broker, "describe", group, "--json").output)
    assert (told["type"], told["state"]) == (protocol, "Stable")
    [member] = told["members"]
    assert member["client_id"] == "reader"
    assert [one["partition"] for one in member["partitions"]] == [0, 1]
    first, second = told["partitions"]
    assert (first["committed"], first["end"], first["lag"]) == (4, RECORDS, 2)
    assert (second["committed"], second["end"], second["lag"]) == (None, 0, None)
    table = run(broker, "describe", group)
    assert "reader" in table.output
    assert f"{group} is a {protocol} group" in table.errors
    rehearsed = run(broker, "reset", group, "--to", "beginning", "--dry-run", "--json")
    assert [one["after"] for one in json.loads(rehearsed.output)] == [0]
    refused = run(broker, "reset", group, "--to", "beginning")
    assert refused.exit_code == 1
    assert f"group {group} has 1 member; stop its consumers first" in refused.errors
    refused = run(broker, "delete", group, "-y")
    assert refused.exit_code == 1
    assert f"group {group} has members; stop its consumers first" in refused.errors
    told = json.loads(run(broker, "describe", group, "--json").output)
    assert told["partitions"][0]["committed"] == 4
    consumer.close()


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        ("beginning", 0),
        ("end", 6),
        ("2", 2),
        ("-1", 5),
        ("99", 6),
        ("@1970-01-01T00:00:03Z", 2),
        ("@1970-01-01T00:00:02.5Z", 2),
        ("@now", 6),
    ],
)
def test_a_group_is_moved_and_its_consumers_read_from_there(
    broker: Broker, topic: str, start: str, offset: int
) -> None:
    group = f"moved-{topic}"
    commit(broker, group, topic, 3)
    rehearsed = run(broker, "reset", group, "--to", start, "--dry-run", "--json")
    row = {"topic": topic, "partition": 0, "before": 3, "after": offset, "end": RECORDS}
    assert (rehearsed.exit_code, json.loads(rehearsed.output)) == (0, [row])
    refused = run(broker, "reset", group, "--to", start)
    assert (refused.exit_code, "requires -y" in refused.errors) == (1, True)
    moved = run(broker, "reset", group, "--to", start, "--json", "-y")
    # The rehearsal has changed nothing.
    assert (moved.exit_code, json.loads(moved.output)) == (0, [row])
    assert moved.errors == ""
    consumer = consumer_of(broker, group)
    consumer.subscribe([topic])
    # A record of its own tells the end, also where there is nothing else to read.
    write(broker, topic, RECORDS)
    expected = [str(number).encode() for number in range(offset, RECORDS + 1)]
    assert read(consumer, len(expected)) == expected
    consumer.close()


def test_a_group_that_is_not_there_yet_is_given_a_place_to_begin(
    broker: Broker, topic: str
) -> None:
    missing = run(broker, "reset", "not-yet", "--to", "end")
    assert missing.exit_code == 1
    assert "group not-yet does not exist" in missing.errors
    made = run(broker, "reset", "not-yet", "--to", "end", "-t", f"{topic}:0", "-y")
    assert made.exit_code == 0
    told = json.loads(run(broker, "describe", "not-yet", "--json").output)
    assert [(one["partition"], one["committed"]) for one in told["partitions"]] == [(0, RECORDS)]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (["reset", "g", "--to", "soon"], 2, "'soon' is not beginning, end, N, -N or @TIME"),
        (["reset", "g", "--to", "end", "-t", "no-topic"], 1, "topic no-topic does not exist"),
        (["reset", "g", "--to", "end", "-t", "TOPIC:9"], 1, "partition 9 does not exist"),
        (["reset", "g", "--to", "end", "-t", "TOPIC:x"], 2, "is not TOPIC or TOPIC:PARTITION"),
        (["describe", "nobody"], 1, "group nobody does not exist"),
        (["delete", "nobody", "-y"], 1, "group nobody does not exist"),
        (["lag", "nobody"], 1, "group nobody does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(
    broker: Broker, topic: str, arguments: list[str], exit_code: int, text: str
) -> None:
    ran = run(broker, *(each.replace("TOPIC", topic) for each in arguments))
    assert ran.exit_code == exit_code
    assert text in ran.errors


def test_groups_that_are_too_far_behind_fail_the_command(broker: Broker, topic: str) -> None:
    commit(broker, "slow", topic, 1)
    assert run(broker, "lag", "slow", "--max", "5").exit_code == 0
    late = run(broker, "lag", "slow", "--max", "4", "--json")
    assert json.loads(late.output) == [{"group": "slow", "topic": topic, "lag": 5}]
    assert late.exit_code == 1
    assert json.loads(late.errors)["error"]["message"] == "more than 4 behind: slow"
    assert "slow" in run(broker, "lag").output


def test_a_deleted_group_is_gone_with_its_commits(broker: Broker, topic: str) -> None:
    commit(broker, "old", topic, 1)
    ran = run(broker, "delete", "old", "nobody", "-y")
    assert ran.exit_code == 1
    assert ran.errors.startswith("deleted group old\n")
    assert "old" not in run(broker, "list").output.split()


def test_a_streams_group_is_described_by_the_partitions_that_its_tasks_read(
    broker: Broker, topic: str
) -> None:
    group = f"app-{topic}"
    with joined_member(broker.bootstrap, group, topic):
        [row] = [
            row for row in json.loads(run(broker, "list", "--json").output) if row["group"] == group
        ]
        assert (row["type"], row["protocol_type"]) == ("streams", "streams")
        found = json.loads(run(broker, "describe", group, "--json").output)
        assert (found["type"], found["assignor"]) == ("streams", "sticky")
        [shown] = found["members"]
        read = {(where["topic"], where["partition"]) for where in shown["partitions"]}
        assert read == {(name, p) for name in (topic, f"{topic}-repartition") for p in (0, 1)}
        assert {where["topic"] for where in found["partitions"]} == {topic, f"{topic}-repartition"}
        assert f"{group} is a streams group (sticky)" in run(broker, "describe", group).errors
        assert run(broker, "lag", group).exit_code == 0
        assert run(broker, "delete", group, "-y").exit_code != 0
    assert run(broker, "delete", group, "-y").exit_code == 0
    assert "does not exist" in run(broker, "describe", group).errors
