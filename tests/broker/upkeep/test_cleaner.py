"""The cleaner of a running node, seen through its files and by its clients."""

import asyncio
import errno
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from millstream.broker.upkeep import compaction_worker
from millstream.broker.upkeep.cleaner import Cleaner
from millstream.broker.upkeep.compaction_worker import Throttle
from millstream.errors import KafkaCode
from millstream.records.columns import PURE
from millstream.storage.checkpoints import parse_offsets
from millstream.storage.log import Log
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.compact_topic import CompactTopicRequest, CompactTopicResponse
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

QUICK = {"log.cleaner.backoff.ms": "20", "log.segment.delete.delay.ms": "0"}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}
KEYS = 50


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data_dir: Path) -> Iterator[Broker]:
    with Broker(settings=QUICK, data_dir=data_dir) as running:
        yield running


def create(broker: Broker, **configs: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, configs={**COMPACTED, **configs})
    return name


def produce(broker: Broker, topic: str, rounds: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "log_level": 0})
    for number in rounds:
        for key in range(KEYS):
            producer.produce(topic, b"%d " % number + b"x" * 50, key=b"k%d" % key)
        producer.flush(20)


def consume(broker: Broker, topic: str, offset: int = 0) -> list[tuple[int, bytes, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "the consumer stopped"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def log_bytes(data_dir: Path, topic: str) -> int:
    size_bytes = 0
    for path in (data_dir / f"{topic}-0").glob("*.log"):
        try:
            size_bytes += path.stat().st_size
        except FileNotFoundError:
            # Renamed between the look at the directory and this one: look again.
            return log_bytes(data_dir, topic)
    return size_bytes


def wait_until_compacted(data_dir: Path, topic: str) -> None:
    """All but the active segment: then far less is left than was produced."""
    wait_until(lambda: log_bytes(data_dir, topic) < 40_000, f"{topic} is compacted")


def check_newest(found: list[tuple[int, bytes, bytes]], newest: int) -> None:
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    values = {key: value for _, key, value in found}
    assert len(values) == KEYS
    assert {value.split()[0] for value in values.values()} == {b"%d" % newest}


def test_a_compacted_topic_is_compacted_by_itself(broker: Broker, data_dir: Path) -> None:
    topic = create(broker)
    produce(broker, topic, range(60))
    wait_until_compacted(data_dir, topic)
    found = consume(broker, topic)
    check_newest(found, 59)
    assert len(found) < 20 * KEYS
    stored = parse_offsets((data_dir / "cleaner-offset-checkpoint").read_bytes())
    assert {str(where) for where in stored} >= {f"{topic}-0"}
    wait_until(
        lambda: (
            not [
                *(data_dir / f"{topic}-0").glob("*.deleted"),
                *(data_dir / f"{topic}-0").glob("*.swap"),
            ]
        ),
        "the old files are gone",
    )


def test_a_topic_that_is_not_compacted_is_left_alone(broker: Broker, data_dir: Path) -> None:
    other, compacted = create(broker, **{"cleanup.policy": "delete"}), create(broker)
    for topic in (other, compacted):
        produce(broker, topic, range(40))
    wait_until_compacted(data_dir, compacted)
    assert len(consume(broker, other)) == 40 * KEYS


def test_python_loops_compact_in_a_child_process(
    broker: Broker, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_worker, "IMPLEMENTATION", PURE)
    topic = create(broker)
    produce(broker, topic, range(60))
    wait_until_compacted(data_dir, topic)
    check_newest(consume(broker, topic), 59)


def test_a_round_whose_process_cannot_be_started_now_is_begun_later(
    broker: Broker, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.create_subprocess_exec
    failures = [errno.EAGAIN, errno.ENOMEM]

    async def fail_at_first(*command: Any, **options: Any) -> Any:
        if failures:
            raise OSError(failures.pop(), "no more processes")
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail_at_first)
    monkeypatch.setattr(compaction_worker, "IN_THREAD_BYTES_MAX", 0)
    topic = create(broker)
    produce(broker, topic, range(60))
    wait_until_compacted(data_dir, topic)
    assert not failures


def test_a_consumer_in_the_middle_reads_on(broker: Broker, data_dir: Path) -> None:
    topic = create(broker)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: dict[bytes, bytes] = {}
    last_offset = -1
    for step in range(12):
        produce(broker, topic, range(step * 5, step * 5 + 5))
        for message in consumer.consume(40, timeout=1):
            assert message.error() is None, message.error()
            assert message.offset() > last_offset
            last_offset = message.offset()
            seen[message.key()] = message.value()
    wait_until_compacted(data_dir, topic)
    end = time.monotonic() + 30
    while last_offset < 60 * KEYS - 1:
        assert time.monotonic() < end, f"the consumer stopped at {last_offset}"
        for message in consumer.consume(500, timeout=0.5):
            assert message.error() is None, message.error()
            assert message.offset() > last_offset
            last_offset = message.offset()
            seen[message.key()] = message.value()
    consumer.close()
    assert {value.split()[0] for value in seen.values()} == {b"59"}


def test_a_damaged_partition_is_left_alone_and_others_go_on(
    broker: Broker, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = create(broker, **{"min.cleanable.dirty.ratio": "1.0"})
    produce(broker, damaged, range(30))
    first = data_dir / f"{damaged}-0" / f"{0:020d}.log"
    with open(first, "r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff\xff")
    other = create(broker)
    produce(broker, other, range(60))
    with RawVendor(broker.bootstrap) as vendor:
        vendor.compact(damaged, is_started=True)
        wait_until(lambda: vendor.state(damaged) == 3, "the damage is found")
        wait_until_compacted(data_dir, other)
        told = vendor.compact(damaged, is_started=False).partitions[0]
    assert told.problem is not None
    assert str(first) in told.problem
    assert f"cannot compact {damaged}-0" in caplog.text
    assert not list((data_dir / f"{damaged}-0").glob("*.cleaned"))


def test_a_topic_that_is_made_anew_does_not_inherit_the_failure(
    broker: Broker, data_dir: Path
) -> None:
    topic = create(broker, **{"min.cleanable.dirty.ratio": "1.0"})
    produce(broker, topic, range(30))
    with open(data_dir / f"{topic}-0" / f"{0:020d}.log", "r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff\xff")
    with RawVendor(broker.bootstrap) as vendor:
        vendor.compact(topic, is_started=True)
        wait_until(lambda: vendor.state(topic) == 3, "the damage is found")
        broker.delete_topic(topic)
        broker.create_topic(topic, configs=COMPACTED)
        assert vendor.state(topic) == 0
    produce(broker, topic, range(60))
    wait_until_compacted(data_dir, topic)


class RawVendor(RawClient):
    def compact(self, topic: str, *, is_started: bool) -> CompactTopicResponse:
        return self.ask(CompactTopicRequest(topic=topic, is_started=is_started), 0)

    def state(self, topic: str) -> int:
        return self.compact(topic, is_started=False).partitions[0].state


class TestVendorApi:
    def listed(self, client: RawClient, name: str) -> set[int]:
        answer = client.ask(
            ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3
        )
        return {row.api_key for row in answer.api_keys}

    def test_the_key_is_shown_to_our_own_clients_only(self, broker: Broker) -> None:
        with RawClient(broker.bootstrap) as client:
            assert CompactTopicRequest.api.key in self.listed(client, "millstream")
            assert CompactTopicRequest.api.key not in self.listed(client, "librdkafka")

    def test_what_cannot_be_compacted_gets_a_code(self, broker: Broker) -> None:
        other = create(broker, **{"cleanup.policy": "delete"})
        with RawVendor(broker.bootstrap) as vendor:
            unknown = vendor.compact("nobody-made-this", is_started=True)
            refused = vendor.compact(other, is_started=True)
        assert unknown.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.error_code == KafkaCode.POLICY_VIOLATION

    def test_asking_compacts_everything_the_active_segment_too(self, broker: Broker) -> None:
        topic = create(
            broker, **{"internal.segment.bytes": "1048576", "min.cleanable.dirty.ratio": "1.0"}
        )
        produce(broker, topic, range(10))
        with RawVendor(broker.bootstrap) as vendor:
            vendor.compact(topic, is_started=True)
            wait_until(lambda: vendor.state(topic) == 0, "it is done")
            told = vendor.compact(topic, is_started=False).partitions[0]
        assert (told.records_before, told.records_after, told.keys) == (10 * KEYS, KEYS, KEYS)
        assert told.bytes_after < told.bytes_before
        assert told.dirty_ratio == 0
        check_newest(consume(broker, topic), 9)
        assert len(consume(broker, topic)) == KEYS


def test_a_node_that_stops_while_a_segment_is_put_in_place_stops_quietly(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_syncing = threading.Event()

    async def never_ends(cleaner: Cleaner, partition_log: Log) -> None:
        is_syncing.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Cleaner, "_sync", never_ends)
    with Broker(settings=QUICK, data_dir=data_dir) as broker:
        produce(broker, create(broker), range(40))
        assert is_syncing.wait(20)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_node_that_stops_in_the_middle_of_a_round_leaves_nothing_behind(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = Throttle.__call__

    def move_until_the_middle(throttle: Throttle, size_bytes: int) -> None:
        if list(data_dir.glob("*/*.cleaned")):
            throttle._stop.wait(60)
        move(throttle, size_bytes)

    # A child process is not held, only slow.
    slow = {**QUICK, "log.cleaner.io.max.bytes.per.second": "50000"}
    with monkeypatch.context() as patched, Broker(settings=slow, data_dir=data_dir) as broker:
        patched.setattr(Throttle, "__call__", move_until_the_middle)
        topic = create(broker)
        produce(broker, topic, range(40))
        wait_until(
            lambda: bool(list((data_dir / f"{topic}-0").glob("*.cleaned"))), "a round has begun"
        )
    assert not list((data_dir / f"{topic}-0").glob("*.swap"))
    with Broker(settings=QUICK, data_dir=data_dir) as broker:
        wait_until_compacted(data_dir, topic)
        check_newest(consume(broker, topic), 39)
