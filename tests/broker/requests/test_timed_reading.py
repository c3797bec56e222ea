"""Delayed and expiring records on a node: for share groups, and for ordinary consumers.

The clock is moved, so nothing here waits for a delay.
"""

import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from millstream.broker.requests import known_times, timed_reading
from millstream.errors import KafkaCode
from millstream.records.batch import split_batches
from millstream.records.delivery_times import headers_for
from millstream.testing import Broker
from millstream.testing.topic import Topic
from millstream.wire.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from tests.support.raw_client import RawClient
from tests.support.share_member import (
    ACCEPT,
    Fetched,
    ShareMember,
    lag_of,
    set_group_options,
    topic_id,
)
from tests.support.waiting import wait_until

LONG_MS = 20_000
HOUR_MS = 3_600_000
TIMED = {"millstream.delivery.times.enable": "true"}


@pytest.fixture(params=[known_times.QUICK_BYTES, 0], ids=["at once", "in a thread"])
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Times are found while a fetch is served, or it waits until a thread has found them."""
    monkeypatch.setattr(known_times, "QUICK_BYTES", request.param)
    with Broker() as running:
        running.clock.freeze()
        yield running


def send(
    broker: Broker,
    topic: str,
    value: str,
    *,
    delay_ms: int | None = None,
    ttl_ms: int | None = None,
    codec: str = "none",
) -> None:
    """One batch with one record."""
    now_ms = broker.clock.now_ms()
    headers = headers_for(
        not_before_ms=None if delay_ms is None else now_ms + delay_ms,
        not_after_ms=None if ttl_ms is None else now_ms + ttl_ms,
    )
    producer = Producer({**broker.client_config(), "compression.type": codec})
    producer.produce(topic, value, headers=headers)
    assert producer.flush(20) == 0


# -- share groups -------------------------------------------------------------------------


@pytest.fixture
def member(broker: Broker) -> Iterator[ShareMember]:
    name = f"q-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name)
    with RawClient(broker.bootstrap) as client:
        set_group_options(client, name, share_auto_offset_reset="earliest")
    with ShareMember(broker.bootstrap, name, name) as made:
        made.join()
        made.fetch(records=0)
        yield made


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_share_group_gets_a_delayed_record_when_it_is_due(
    broker: Broker, member: ShareMember, codec: str
) -> None:
    send(broker, member.topic, "later", delay_ms=30_000, codec=codec)
    send(broker, member.topic, "now")
    assert member.fetch(wait_ms=LONG_MS).ranges == [(1, 1, 1)]
    assert member.acknowledge((1, 1, [ACCEPT])) is KafkaCode.NONE
    broker.clock.advance(milliseconds=20_000)
    assert member.fetch().ranges == []
    broker.clock.advance(milliseconds=10_000)
    assert member.fetch(wait_ms=LONG_MS).ranges == [(0, 0, 1)]


def test_a_fetch_that_finds_only_delayed_records_waits(broker: Broker, member: ShareMember) -> None:
    send(broker, member.topic, "later", delay_ms=30_000)
    found: list[Fetched] = []
    thread = threading.Thread(target=lambda: found.append(member.fetch(wait_ms=60_000)))
    thread.start()
    wait_until(lambda: _delayed(broker, member.group) == 1, "the record waits for its time")
    assert found == []
    broker.clock.advance(milliseconds=30_000)
    thread.join(LONG_MS / 1000)
    assert found[0].ranges == [(0, 0, 1)]


def _delayed(broker: Broker, group: str) -> int:
    node = broker._node
    assert node is not None
    if not node.coordination.has_sharing:
        return 0
    all_of = node.coordination.sharing.partitions.all()
    return sum(
        led.share.delays.count
        for led in all_of
        if led.key.group_id == group and led.share is not None
    )


def test_a_share_group_never_gets_an_expired_record(broker: Broker, member: ShareMember) -> None:
    send(broker, member.topic, "short", ttl_ms=1_000)
    send(broker, member.topic, "long", ttl_ms=HOUR_MS)
    broker.clock.advance(milliseconds=1_100)
    assert member.fetch(wait_ms=LONG_MS).ranges == [(1, 1, 1)]
    wait_until(
        lambda: lag_of(broker.bootstrap, member.group, member.topic) == 1, "only one is left"
    )


# -- ordinary consumers -------------------------------------------------------------------


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", configs=TIMED)


def fetch(
    broker: Broker, topic: str, offset: int, *, wait_ms: int = 0, is_committed: bool = False
) -> list[int]:
    """The base offsets of the batches."""
    with RawClient(broker.bootstrap) as client:
        row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(is_committed),
            topics=[FetchTopic(topic_id=topic_id(client, topic), partitions=[row])],
        )
        [answer] = client.ask(request, 13).responses
    [found] = answer.partitions
    assert found.error_code == KafkaCode.NONE
    return [batch.base_offset for batch in split_batches(memoryview(found.records or b""))]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_consumer_reads_up_to_the_first_batch_that_is_not_due(
    broker: Broker, topic: Topic, is_committed: bool
) -> None:
    send(broker, topic, "now")
    send(broker, topic, "later", delay_ms=1_000)
    send(broker, topic, "behind it")
    assert fetch(broker, topic, 0, is_committed=is_committed) == [0]
    assert fetch(broker, topic, 1, is_committed=is_committed) == []
    broker.clock.advance(milliseconds=1_100)
    assert fetch(broker, topic, 1, is_committed=is_committed) == [1, 2]


def test_a_fetch_that_waits_is_answered_when_the_batch_is_due(broker: Broker, topic: Topic) -> None:
    send(broker, topic, "later", delay_ms=5_000)
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(fetch(broker, topic, 0, wait_ms=50_000)))
    thread.start()
    wait_until(lambda: bool(broker.requests("Fetch")), "the fetch has arrived")
    broker.clock.advance(milliseconds=5_010)
    thread.join(LONG_MS / 1000)
    assert found == [[0]]


def test_expired_batches_are_left_out(broker: Broker, topic: Topic) -> None:
    for value in ("a", "b"):
        send(broker, topic, value, ttl_ms=1_000)
    send(broker, topic, "c")
    send(broker, topic, "d", ttl_ms=1_000)
    send(broker, topic, "e")
    assert fetch(broker, topic, 0) == [0, 1, 2, 3, 4]
    broker.clock.advance(milliseconds=1_100)
    assert fetch(broker, topic, 0) == [2]
    assert fetch(broker, topic, 3) == [4]
    assert [record.text for record in topic.records()] == ["c", "e"]


def test_a_consumer_gets_past_more_expired_records_than_one_fetch_reads(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        send(broker, topic, "x", ttl_ms=1_000)
    broker.clock.advance(milliseconds=1_100)
    monkeypatch.setattr(timed_reading, "_PASSED_BYTES_MAX", 1)
    monkeypatch.setattr(timed_reading, "_READ_BYTES_MAX", 1)
    assert fetch(broker, topic, 0) == []
    send(broker, topic, "y")
    for _ in range(6):
        found = fetch(broker, topic, 0)
        if found:
            break
    assert found == [6]


def test_other_topics_do_not_look_at_headers(broker: Broker) -> None:
    plain = broker.create_topic("plain")
    send(broker, plain, "later", delay_ms=HOUR_MS)
    send(broker, plain, "old", ttl_ms=0)
    broker.clock.advance(milliseconds=10)
    assert fetch(broker, plain, 0) == [0, 1]


def test_the_option_may_be_changed_while_the_topic_is_read(broker: Broker, topic: Topic) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    send(broker, topic, "later", delay_ms=HOUR_MS)
    assert fetch(broker, topic, 0) == []
    entry = ConfigEntry(
        "millstream.delivery.times.enable", "false", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=[entry])
    admin = AdminClient(broker.client_config())
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result(20)
    assert fetch(broker, topic, 0) == [0]
