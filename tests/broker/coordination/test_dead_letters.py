"""Dead letters on a node and in a cluster: written before their record is archived.

Covers broker/coordination/dead_letters.py.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream.broker.coordination import dead_letters
from millstream.coordinators.share.dead_letters import REJECTED, TOO_MANY_DELIVERIES
from millstream.errors import KafkaCode, KafkaError
from millstream.model import Codec
from millstream.records.builder import build_batch
from millstream.records.records import Record as KafkaRecord
from millstream.security.acl import Operation, ResourceType
from millstream.testing import Broker, Cluster
from millstream.testing.topic import Record
from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from millstream.wire.apis.create_topics import (
    CreatableAssignment,
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.broker.handlers.exchanges import produce as raw_produce
from tests.support.raw_client import RawClient
from tests.support.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    ShareMember,
    lag_of,
    produce,
    set_group_options,
)
from tests.support.waiting import wait_until

LONG_MS = 20_000
PERMITTED = {"errors.deadletterqueue.group.enable": "true"}
AUTO_CREATE = {"errors.deadletterqueue.auto.create.topics.enable": "true"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def name(broker: Broker) -> str:
    """A topic, and a group of the same name whose dead letters go to `dlq.` and the name."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name)
    configure(broker.bootstrap, name)
    return name


def configure(bootstrap: str, group: str, **options: str) -> None:
    with RawClient(bootstrap) as client:
        set_group_options(
            client,
            group,
            **{
                "share_auto_offset_reset": "earliest",
                "share_delivery_count_limit": "2",
                "errors_deadletterqueue_topic_name": f"dlq.{group}",
                **options,
            },
        )


def new_member(bootstrap: str, name: str) -> ShareMember:
    member = ShareMember(bootstrap, name, name)
    member.join()
    return member


def now_ms() -> int:
    return int(time.time() * 1000)


def headers_of(record: Record) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in record.headers}


def test_rejected_records_and_those_that_fail_too_often_get_letters(
    broker: Broker, name: str
) -> None:
    letters = broker.create_topic(f"dlq.{name}", configs=PERMITTED)
    broker.topic(name).produce([("k", "a"), ("k", "b"), ("k", "c")])
    with new_member(broker.bootstrap, name) as member:
        member.fetch(wait_ms=LONG_MS)
        said = [(0, 0, [REJECT]), (1, 1, [RELEASE]), (2, 2, [ACCEPT])]
        assert member.acknowledge(*said) is KafkaCode.NONE
        assert member.fetch(wait_ms=LONG_MS).ranges == [(1, 1, 2)]
        assert member.acknowledge((1, 1, [RELEASE])) is KafkaCode.NONE
        first, second = letters.wait(2, timeout=20)
        wait_until(lambda: lag_of(broker.bootstrap, name, name) == 0, "both are archived")
    assert (first.key, first.value) == (None, None)
    assert headers_of(first) == {
        "topic": name.encode(),
        "partition": b"0",
        "offset": b"0",
        "group": name.encode(),
        "delivery.count": b"1",
        "message": REJECTED.encode(),
    }
    assert headers_of(second)["message"] == TOO_MANY_DELIVERIES.encode()
    assert headers_of(second)["delivery.count"] == b"2"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_letter_may_be_a_copy_of_its_record(broker: Broker, name: str, codec: str) -> None:
    letters = broker.create_topic(f"dlq.{name}", configs=PERMITTED)
    configure(broker.bootstrap, name, errors_deadletterqueue_copy_record_enable="true")
    producer = Producer({**broker.client_config(), "compression.type": codec, "linger.ms": 200})
    for number in range(3):
        producer.produce(name, f"v{number}" * 50, f"k{number}", headers={"trace": f"{number}"})
    producer.flush(20)
    with new_member(broker.bootstrap, name) as member:
        member.fetch(wait_ms=LONG_MS)
        assert member.acknowledge((1, 2, [REJECT])) is KafkaCode.NONE
        found = letters.wait(2, timeout=20)
    assert [(one.key, one.value) for one in found] == [
        (f"k{number}".encode(), f"v{number}".encode() * 50) for number in (1, 2)
    ]
    assert [headers_of(one)["trace"] for one in found] == [b"1", b"2"]


def test_copies_are_made_in_a_thread(
    broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches may unpack to 64 MiB: other clients do not wait for that."""
    on_loop: list[bool] = []

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            on_loop.append(asyncio._get_running_loop() is not None)
            return work(*arguments, **options)

        return call

    for work in ("iterate_records", "with_copy", "_size_bytes", "build_batch"):
        monkeypatch.setattr(dead_letters, work, noted(getattr(dead_letters, work)))
    letters = broker.create_topic(f"dlq.{name}", configs=PERMITTED)
    configure(broker.bootstrap, name, errors_deadletterqueue_copy_record_enable="true")
    broker.topic(name).produce(["v"])
    with new_member(broker.bootstrap, name) as member:
        member.fetch(wait_ms=LONG_MS)
        assert member.acknowledge((0, 0, [REJECT])) is KafkaCode.NONE
        [found] = letters.wait(1, timeout=20)
    assert (found.value, on_loop) == (b"v", [False] * 4)


def bare_letters(*offsets: int) -> list[KafkaRecord]:
    return [KafkaRecord(offset, 0, None, None, []) for offset in offsets]


def copied(batch: bytes, *offsets: int, bytes_max: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """Offset and value of the letters that one batch is read for."""
    found, _ = dead_letters._copied(batch, bare_letters(*offsets), bytes_max)
    return [(letter.record.offset, letter.record.value) for letter in found]


def test_records_that_compaction_removed_are_sought_once() -> None:
    batch = bytes(build_batch([KafkaRecord(6, 0, b"k", b"v", [])], base_offset=5))
    assert copied(batch, 3, 4, 5, 6, 7) == [(3, None), (4, None), (5, None), (6, b"v")]
    with pytest.raises(ValueError, match="no whole batch"):
        copied(b"", 3)


def test_of_a_batch_only_what_is_copied_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of that so much at a time: two kilobytes may hold a hundred megabytes."""
    content = [KafkaRecord(offset, 0, None, b"%d" % offset * 500) for offset in range(10)]
    batch = bytes(build_batch(content, base_offset=0))
    assert [offset for offset, _ in copied(batch, 2, 5, 6, 1)] == [2, 5, 6]
    assert [offset for offset, _ in copied(batch, 8, 12)] == [8]
    monkeypatch.setattr(dead_letters, "_COPIED_BYTES", 1000)
    assert [offset for offset, _ in copied(batch, 2, 5, 6)] == [2, 5]
    assert copied(batch, 2, bytes_max=100) == [(2, None)]


def test_a_record_of_nothing_but_headers_is_not_copied(
    broker: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A million of them are two kilobytes of zstd, and half a gigabyte of objects."""
    letters = broker.create_topic(f"dlq.{name}", configs=PERMITTED)
    configure(broker.bootstrap, name, errors_deadletterqueue_copy_record_enable="true")
    bomb = [KafkaRecord(0, now_ms(), None, b"bomb", [("", b"")] * 100_000)]
    for content in ([KafkaRecord(0, now_ms(), None, b"fine")], bomb):
        with RawClient(broker.bootstrap) as client:
            data = build_batch(content, base_offset=0, codec=Codec.ZSTD)
            assert raw_produce(client, name, data).error_code == KafkaCode.NONE
    with caplog.at_level(logging.WARNING), new_member(broker.bootstrap, name) as member:
        for offset in range(2):
            member.fetch(records=1, is_exact=True, wait_ms=LONG_MS)
            assert member.acknowledge((offset, offset, [REJECT])) is KafkaCode.NONE
        found = letters.wait(2, timeout=20)
    assert [one.value for one in found] == [b"fine", None]
    assert len(found[1].headers) == len(found[0].headers)
    assert "has 100000 headers" in caplog.text


def test_a_record_that_is_too_large_for_the_topic_gets_a_letter_without_a_copy(
    broker: Broker, name: str
) -> None:
    configs = {**PERMITTED, "max.message.bytes": "1000"}
    letters = broker.create_topic(f"dlq.{name}", configs=configs)
    configure(broker.bootstrap, name, errors_deadletterqueue_copy_record_enable="true")
    broker.topic(name).produce([(None, "x" * 2_000, {"h": "y"}), "small"])
    with new_member(broker.bootstrap, name) as member:
        found = member.fetch(wait_ms=LONG_MS).ranges
        assert member.acknowledge((found[0][0], found[-1][1], [REJECT])) is KafkaCode.NONE
        if found[-1][1] == 0:
            member.fetch(wait_ms=LONG_MS)
            assert member.acknowledge((1, 1, [REJECT])) is KafkaCode.NONE
        large, small = letters.wait(2, timeout=20)
    assert (large.value, small.value) == (None, b"small")
    assert "h" not in headers_of(large)


def test_where_not_even_the_headers_fit_records_are_archived(
    broker: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    letters = broker.create_topic(f"dlq.{name}", configs={**PERMITTED, "max.message.bytes": "100"})
    broker.topic(name).produce(["a", "b"])
    with caplog.at_level(logging.ERROR), new_member(broker.bootstrap, name) as member:
        for _ in range(2):
            # One after the other, so that letters are tried twice.
            [(offset, _, _)] = member.fetch(records=1, is_exact=True, wait_ms=LONG_MS).ranges
            assert member.acknowledge((offset, offset, [REJECT])) is KafkaCode.NONE
            wait_until(
                lambda: all(row.state != "dying" for row in broker.in_flight(name)),
                "the record is archived",
            )
    assert letters.records() == []
    complaints = [one for one in caplog.messages if name in one]
    assert len(complaints) == 1
    assert "max.message.bytes" in complaints[0]


def test_the_topic_is_created_where_the_node_permits_it() -> None:
    with Broker(topics={"orders": 1}, settings=AUTO_CREATE) as broker:
        configure(broker.bootstrap, "orders")
        broker.topic("orders").produce(["a"])
        with new_member(broker.bootstrap, "orders") as member:
            member.fetch(wait_ms=LONG_MS)
            assert member.acknowledge((0, 0, [REJECT])) is KafkaCode.NONE
            wait_until(lambda: "dlq.orders" in broker.topic_names(), "the topic")
        [letter] = broker.topic("dlq.orders").wait(1, timeout=20)
        assert headers_of(letter)["offset"] == b"0"


@pytest.mark.parametrize(
    ("topic", "configs", "words"),
    [
        ("", {}, None),
        ("dlq.missing", None, "does not exist"),
        ("dlq.forbidden", {}, "errors.deadletterqueue.group.enable"),
        ("elsewhere", PERMITTED, "does not begin with"),
    ],
)
def test_without_a_topic_that_takes_letters_records_are_archived(
    broker: Broker,
    name: str,
    topic: str,
    configs: dict[str, str] | None,
    words: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if topic and configs is not None:
        broker.create_topic(topic, configs=configs)
    configure(broker.bootstrap, name, errors_deadletterqueue_topic_name=topic)
    broker.topic(name).produce(["a", "b"])
    with (
        caplog.at_level(logging.ERROR, dead_letters.__name__),
        new_member(broker.bootstrap, name) as member,
    ):
        member.fetch(wait_ms=LONG_MS, records=1, is_exact=True)
        assert member.acknowledge((0, 0, [REJECT])) is KafkaCode.NONE
        member.fetch(wait_ms=LONG_MS)
        assert member.acknowledge((1, 1, [REJECT])) is KafkaCode.NONE
        wait_until(lambda: lag_of(broker.bootstrap, name, name) == 0, "they are archived")
    said = [record.getMessage() for record in caplog.records]
    if words is None:
        assert said == []
    else:
        [once_for_both] = said
        assert words in once_for_both
    if topic and configs is not None:
        assert broker.topic(topic).records() == []


def test_a_group_may_not_name_an_internal_topic(broker: Broker, name: str) -> None:
    with pytest.raises(AssertionError, match="internal"):
        configure(broker.bootstrap, name, errors_deadletterqueue_topic_name="__consumer_offsets")


def test_a_letter_that_cannot_be_written_is_tried_again_also_after_the_last_member_left(
    broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = broker.create_topic(f"dlq.{name}", configs=PERMITTED)
    append = dead_letters.DeadLetters._append
    failures = [KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS)] * 3

    async def fails_at_first(self: Any, topic: str, index: int, batch: bytearray) -> None:
        if failures:
            raise failures.pop()
        await append(self, topic, index, batch)

    monkeypatch.setattr(dead_letters.DeadLetters, "_append", fails_at_first)
    broker.topic(name).produce(["a"])
    with new_member(broker.bootstrap, name) as member:
        member.fetch(wait_ms=LONG_MS)
        assert member.acknowledge((0, 0, [REJECT])) is KafkaCode.NONE
        assert member.close_session() is KafkaCode.NONE
    for seconds in (0.1, 0.5, 2.0):
        left = len(failures)
        broker.clock.advance(seconds=seconds)
        wait_until(lambda left=left: len(failures) < left or not failures, "the next attempt")  # type: ignore[misc]
    broker.clock.advance(seconds=5)
    assert len(letters.wait(1, timeout=20)) == 1
    wait_until(lambda: lag_of(broker.bootstrap, name, name) == 0, "it is archived")


def test_a_crash_before_the_letter_is_written_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record is stored as archiving; the next start finds it."""

    async def fails(*_: Any) -> None:
        raise KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS)

    with Broker(topics={"orders": 1}) as broker:
        letters = broker.create_topic("dlq.orders", configs=PERMITTED)
        configure(broker.bootstrap, "orders")
        broker.topic("orders").produce(["a", "b"])
        with monkeypatch.context() as patched:
            patched.setattr(dead_letters.DeadLetters, "_append", fails)
            with new_member(broker.bootstrap, "orders") as member:
                member.fetch(wait_ms=LONG_MS)
                assert member.acknowledge((0, 0, [REJECT])) is KafkaCode.NONE
                broker.stop()
        broker.start()
        assert letters.records() == []
        with new_member(broker.bootstrap, "orders") as member:
            ranges = member.fetch(wait_ms=LONG_MS).ranges
            assert [one[:2] for one in ranges] == [(1, 1)], "nobody gets the dead one"
            [letter] = letters.wait(1, timeout=20)
        assert headers_of(letter)["offset"] == b"0"
        assert headers_of(letter)["message"] == REJECTED.encode()


def test_another_node_may_lead_the_letters_and_only_nodes_may_write_there() -> None:
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Cluster(brokers=3, settings=settings) as cluster:
        first, second, _ = cluster.bootstrap.split(",")
        with RawClient(first) as client:
            create(client, "orders", [1, 2])
            create(client, "dlq.orders", [2, 3], PERMITTED)
            allow_reading(client, "dlq.orders")
        letters = cluster.topic("dlq.orders")
        configure(first, "orders")
        cluster.topic("orders").produce(["a", "b"])
        with RawClient(second) as client, pytest.raises(AssertionError, match="error_code=29"):
            produce(client, "dlq.orders", 1)
        with new_member(first, "orders") as member:
            member.fetch(wait_ms=LONG_MS)
            assert cluster.leader("orders", 0) != cluster.leader("dlq.orders", 0)
            assert member.acknowledge((0, 1, [REJECT])) is KafkaCode.NONE
            found = letters.wait(2, timeout=30)
        assert [headers_of(one)["offset"] for one in found] == [b"0", b"1"]


def create(
    client: RawClient, name: str, replicas: list[int], configs: dict[str, str] | None = None
) -> None:
    place = CreatableAssignment(partition_index=0, broker_ids=replicas)
    rows = [CreatableConfig(name=each, value=value) for each, value in (configs or {}).items()]
    new = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[place], configs=rows
    )
    [answer] = client.ask(CreateTopicsRequest(topics=[new], timeout_ms=20_000), 5).topics
    assert answer.error_code == KafkaCode.NONE, answer


def allow_reading(client: RawClient, topic: str) -> None:
    allowed = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=3,
        principal="User:*",
        host="*",
        operation=Operation.READ,
        permission_type=3,
    )
    [answer] = client.ask(CreateAclsRequest(creations=[allowed]), 3).results
    assert answer.error_code == KafkaCode.NONE, answer


def test_a_topic_that_is_named_between_fetch_and_reject_gets_the_letter(broker: Broker) -> None:
    name = f"q-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name)
    letters = broker.create_topic(f"dlq.{name}", configs=PERMITTED)
    configure(broker.bootstrap, name, errors_deadletterqueue_topic_name="")
    broker.topic(name).produce(["a"])
    with new_member(broker.bootstrap, name) as member:
        member.fetch(wait_ms=LONG_MS)
        configure(broker.bootstrap, name)
        assert member.acknowledge((0, 0, [REJECT])) is KafkaCode.NONE
        assert len(letters.wait(1, timeout=20)) == 1


def test_letters_are_written_after_their_leader_has_died() -> None:
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    with Cluster(brokers=3, settings=settings) as cluster:
        first = cluster.bootstrap.split(",")[0]
        with RawClient(first) as client:
            create(client, "orders", [1])
            create(client, "dlq.orders", [2, 3], PERMITTED)
        configure(first, "orders")
        cluster.topic("orders").produce(["a", "b"])
        with new_member(first, "orders") as member:
            member.fetch(wait_ms=LONG_MS)
            cluster.wait_in_sync()
            cluster.kill(2)
            # The group's coordinator, or the keeper of its state, may have died as well.
            wait_until(
                lambda: member.acknowledge((0, 1, [REJECT])) is KafkaCode.NONE, "it is confirmed"
            )
            found = cluster.topic("dlq.orders").wait(2, timeout=60)
        assert {headers_of(one)["offset"] for one in found} == {b"0", b"1"}
