"""The broker that runs inside a test."""

import asyncio
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from millstream.errors import StartError
from millstream.testing import Broker


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, value=value)
    assert producer.flush(10) == 0


def first_value(bootstrap: str, topic: str) -> bytes | None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "not-used", "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    message = consumer.poll(10)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def test_a_record_goes_in_and_comes_out() -> None:
    with Broker(topics={"orders": 1}) as broker:
        produce(broker.bootstrap, "orders", b"hello")
        assert first_value(broker.bootstrap, "orders") == b"hello"


_THREADS = """
import contextlib, threading
from confluent_kafka import KafkaException
from millstream.testing import Broker

{program}
# Those of nodes; other libraries have some of their own.
names = ("millstream", "sync", "coordination", "cold-read", "cleaner", "asyncio")
print(*(thread.name for thread in threading.enumerate() if thread.name.startswith(names)))
"""


def threads_left_by(program: str) -> list[str]:
    """In a process of its own: the node that tests share may start a thread at any time."""
    command = [sys.executable, "-c", _THREADS.format(program=program)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_two_brokers_run_side_by_side_and_leave_no_thread() -> None:
    program = (
        "with Broker(topics={'a': 1}) as first, Broker(topics={'b': 1}) as second:\n"
        "    assert first.bootstrap != second.bootstrap"
    )
    assert threads_left_by(program) == []


def test_a_running_broker_has_threads_to_leave() -> None:
    assert threads_left_by("Broker().start()") != []


def test_a_given_directory_keeps_the_data_for_the_next_start(tmp_path: Path) -> None:
    with Broker(topics={"orders": 1}, data_dir=tmp_path) as broker:
        produce(broker.bootstrap, "orders", b"kept")
    with Broker(data_dir=tmp_path) as broker:
        assert first_value(broker.bootstrap, "orders") == b"kept"


def test_topics_that_a_kept_directory_has_are_no_trouble(tmp_path: Path) -> None:
    broker = Broker(topics={"kept": 1}, data_dir=tmp_path)
    for _ in range(2):
        with broker:
            produce(broker.bootstrap, "kept", b"one")
            assert first_value(broker.bootstrap, "kept") == b"one"


def test_a_topic_that_cannot_be_made_fails_the_start_and_leaves_no_thread() -> None:
    with pytest.raises(KafkaException), Broker(topics={"not a name": 1}):
        pass
    program = (
        "with contextlib.suppress(KafkaException):\n    Broker(topics={'not a name': 1}).start()"
    )
    assert threads_left_by(program) == []


def test_a_setting_that_does_not_exist_fails_the_start() -> None:
    with pytest.raises((StartError, ValueError)), Broker(settings={"no.such.option": "1"}):
        pytest.fail("the broker started")


def test_a_broker_that_starts_again_has_its_port_and_its_data() -> None:
    with Broker(topics={"orders": 1}) as broker:
        before = broker.bootstrap
        broker.topic("orders").produce(["kept"])
        broker.stop()
        broker.start()
        assert broker.bootstrap == before
        assert [record.text for record in broker.topic("orders").records()] == ["kept"]


def test_temporary_data_is_gone_at_the_end(tmp_path: Path) -> None:
    with Broker() as broker:
        folder = broker._folder()
        assert folder.exists()
    assert not folder.exists()


def test_going_back_to_a_snapshot() -> None:
    with Broker(topics={"orders": 1}) as broker:
        orders = broker.topic("orders")
        orders.produce(["first"])
        snapshot = broker.snapshot()
        orders.produce(["second"])
        for _ in range(2):
            broker.restore(snapshot)
            assert [record.text for record in orders.records()] == ["first"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"storage": "tape"}, "memory, disk"),
        ({"port": 9092, "settings": {"listeners": "PLAINTEXT://127.0.0.1:0"}}, "listeners"),
        ({"settings": {"log.dirs": "/tmp/x"}}, "data_dir"),
    ],
)
def test_what_cannot_be_honoured_is_an_error(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Broker(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("security", ["ssl", "sasl_ssl", "sasl_plaintext"])
def test_security_with_credentials_that_are_made_up(security: str) -> None:
    with Broker(topics={"orders": 1}, security=security) as broker:
        broker.topic("orders").produce(["secret"])
        assert [record.text for record in broker.topic("orders").records()] == ["secret"]
        assert broker.client_config("java")["security.protocol"] == security.upper()


def test_in_a_running_loop() -> None:
    async def test() -> None:
        async with Broker.aio(topics={"orders": 2}) as broker:
            assert broker.topic("orders").end_offsets() == {0: 0, 1: 0}

    asyncio.run(test())


def test_requests_are_seen_even_if_they_repeat() -> None:
    with Broker(topics={"orders": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "shop"})
        for number in range(20):
            producer.produce("orders", str(number))
            assert producer.flush(10) == 0
        seen = broker.requests("Produce", client_id="shop")
        assert len(seen) == 20
        assert {one.api for one in seen} == {"Produce"}
        assert all(one.size_bytes > 50 for one in seen)


def test_a_broker_goes_back_to_a_time() -> None:
    with Broker(topics={"orders": 1}) as broker:
        topic = broker.topic("orders")
        topic.produce(["before"])
        [record] = topic.records()
        wait_for_the_next_millisecond()
        topic.produce(["after"])
        at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
        broker.rewind(to=at)
        assert [one.text for one in topic.records()] == ["before"]
        topic.produce(["another"])
        assert [one.text for one in topic.wait(2)] == ["before", "another"]


def wait_for_the_next_millisecond() -> None:
    began = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= began:
        pass
