"""`millstream topic trim`, and the topic option that does the same by itself."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millstream.storage.retention import consumed_offset
from tests.support.broker import Broker
from tests.support.command_line import run_millstream
from tests.support.waiting import wait_until

OPTION = "millstream.retention.consumed.groups"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"log.retention.check.interval.ms": "50", "offsets.topic.num.partitions": "3"}
    with Broker(settings=settings) as running:
        yield running


def filled(broker: Broker, name: str, configs: dict[str, str] | None = None) -> str:
    broker.create_topic(name, partitions=2, configs=configs)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(200):
        producer.produce(name, b"x" * 100, partition=number % 2)
    assert producer.flush(20) == 0
    return name


def commit(broker: Broker, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]
    for place in consumer.commit(offsets=places, asynchronous=False):
        assert place.error is None
    consumer.close()


def starts(broker: Broker, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    asked = {TopicPartition(topic, index): OffsetSpec.earliest() for index in range(2)}
    found = {place.partition: f.result(20).offset for place, f in admin.list_offsets(asked).items()}
    return [found[0], found[1]]


def test_the_lowest_commit_counts_and_a_missing_one_keeps_all() -> None:
    assert consumed_offset([30, 10, 20], 30) == 10
    assert consumed_offset([30, None], 30) is None
    assert consumed_offset([], 30) is None


def test_a_commit_beyond_the_end_was_not_made_for_these_records(broker: Broker) -> None:
    assert consumed_offset([31, 10], 30) is None
    topic = filled(broker, "beyond", {OPTION: "beyond-own"})
    commit(broker, "beyond-own", topic, {0: 5, 1: 101})
    commit(broker, "beyond", topic, {0: 101, 1: 100})
    ran = run_millstream(
        *("topic", "trim", topic, "--consumed-by", "beyond", "-b", broker.bootstrap, "--json", "-y")
    )
    assert ran.exit_code == 0, ran.errors
    assert [row["records"] for row in json.loads(ran.output)] == [0, 100]
    wait_until(lambda: starts(broker, topic) == [5, 100], "the option has done its work")


def test_a_topic_that_is_only_compacted_is_not_trimmed(broker: Broker) -> None:
    broker.create_topic("whole", configs={"cleanup.policy": "compact"})
    for options in ((), ("--dry-run",)):
        ran = run_millstream(
            *("topic", "trim", "whole", "--consumed-by", "g", "-b", broker.bootstrap, *options)
        )
        assert ran.exit_code == 1
        assert "no delete in its cleanup.policy" in ran.errors


def test_a_dry_run_shows_records_and_bytes_and_deletes_nothing(broker: Broker) -> None:
    topic = filled(broker, "dry")
    commit(broker, "dry-a", topic, {0: 80, 1: 10})
    commit(broker, "dry-b", topic, {0: 50})
    arguments = ("topic", "trim", topic, "--consumed-by", "dry-a,dry-b", "-b", broker.bootstrap)
    ran = run_millstream(*arguments, "--dry-run", "--json")
    assert ran.exit_code == 0, ran.errors
    first, second = json.loads(ran.output)
    assert (first["partition"], first["trim_offset"], first["records"]) == (0, 50, 50)
    assert 4_000 < first["bytes"] < 10_000
    assert (second["trim_offset"], second["records"], second["bytes"]) == (None, 0, 0)
    assert starts(broker, topic) == [0, 0]


def test_a_trim_deletes_up_to_the_lowest_commit(broker: Broker) -> None:
    topic = filled(broker, "trimmed")
    commit(broker, "trim-a", topic, {0: 80, 1: 10})
    commit(broker, "trim-b", topic, {0: 50})
    arguments = ("topic", "trim", topic, "--consumed-by", "trim-a, trim-b", "-b", broker.bootstrap)
    refused = run_millstream(*arguments)
    assert (refused.exit_code, "requires -y" in refused.errors) == (1, True)
    assert starts(broker, topic) == [0, 0]
    ran = run_millstream(*arguments, "-y")
    assert ran.exit_code == 0, ran.errors
    assert "deleted 50 records" in ran.errors
    assert starts(broker, topic) == [50, 0]
    again = run_millstream(*arguments, "-y")
    assert "deleted 0 records" in again.errors
    assert starts(broker, topic) == [50, 0]


def test_a_group_that_nobody_knows_keeps_everything(broker: Broker) -> None:
    topic = filled(broker, "unknown-group")
    commit(broker, "known", topic, {0: 80, 1: 80})
    ran = run_millstream(
        *("topic", "trim", topic, "--consumed-by", "known,nobody", "-b", broker.bootstrap, "-y")
    )
    assert ran.exit_code == 0, ran.errors
    assert starts(broker, topic) == [0, 0]


def test_a_topic_that_does_not_exist_is_named(broker: Broker) -> None:
    ran = run_millstream("topic", "trim", "nothing", "--consumed-by", "a", "-b", broker.bootstrap)
    assert ran.exit_code == 1
    assert "nothing does not exist" in ran.errors


def test_the_topic_option_trims_on_the_retention_interval(broker: Broker) -> None:
    topic = filled(broker, "by-itself", {OPTION: "self-a,self-b"})
    commit(broker, "self-a", topic, {0: 80, 1: 30})
    commit(broker, "self-b", topic, {0: 60})
    wait_until(lambda: starts(broker, topic)[0] == 60, "the option has trimmed partition 0")
    assert starts(broker, topic) == [60, 0]
    commit(broker, "self-b", topic, {1: 40})
    wait_until(lambda: starts(broker, topic)[1] == 30, "the option has trimmed partition 1")
    assert starts(broker, topic) == [60, 30]
