"""An ACL that is deleted stops real clients within a second, whatever they are doing.

Covers broker/requests/admission.py, broker/requests/permissions.py, broker/handlers.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.handlers.exchanges import batch, produce
from tests.support.broker import Broker
from tests.support.named_clients import credulous_broker
from tests.support.raw_client import RawClient

TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
READ, WRITE = 3, 4
DENIED_TOPIC = 29


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with credulous_broker() as running:
        yield running


def allow(broker: Broker, user: str, resource_type: int, name: str, operation: int) -> None:
    with RawClient(broker.bootstrap, client_id="root") as root:
        creation = AclCreation(
            resource_type=resource_type,
            resource_name=name,
            resource_pattern_type=3,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=3,
        )
        [result] = root.ask(CreateAclsRequest(creations=[creation]), 3).results
        assert result.error_code == 0


def revoke(broker: Broker, user: str, resource_type: int, *, matching: int = 1) -> None:
    with RawClient(broker.bootstrap, client_id="root") as root:
        wanted = DeleteAclsFilter(
            resource_type_filter=resource_type,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=f"User:{user}",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        [result] = root.ask(DeleteAclsRequest(filters=[wanted]), 3).filter_results
        assert (result.error_code, len(result.matching_acls)) == (0, matching)


def new_topic(broker: Broker, name: str) -> str:
    with RawClient(broker.bootstrap, client_id="root") as root:
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        [created] = root.ask(CreateTopicsRequest(topics=[topic]), 5).topics
        assert created.error_code == 0
    return name


@pytest.mark.parametrize("is_small_and_repeated", [True, False])
def test_a_producer_in_a_hot_loop(broker: Broker, is_small_and_repeated: bool) -> None:
    topic = new_topic(broker, f"hot-{is_small_and_repeated}")
    allow(broker, "hot", TOPIC, topic, WRITE)
    value = b"v" if is_small_and_repeated else b"v" * 10_000
    with RawClient(broker.bootstrap, client_id="hot") as client:
        for _ in range(100):
            assert produce(client, topic, batch(value)).error_code == 0
        revoke(broker, "hot", TOPIC)
        # Not one more is written.
        assert produce(client, topic, batch(value)).error_code == DENIED_TOPIC
        allow(broker, "hot", TOPIC, topic, WRITE)
        assert produce(client, topic, batch(value)).error_code == 0
    revoke(broker, "hot", TOPIC)


def test_a_consumer_in_a_long_poll(broker: Broker) -> None:
    topic = new_topic(broker, "polled")
    allow(broker, "poll", TOPIC, topic, READ)
    with RawClient(broker.bootstrap, client_id="poll") as client:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        wanted = FetchTopic(topic=topic, partitions=[partition])
        client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[wanted]), 11)
        # The next request of another connection is served after that one.
        with RawClient(broker.bootstrap, client_id="poll") as other:
            at_once = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted])
            assert other.ask(at_once, 11).responses[0].partitions[0].error_code == 0
        began = time.monotonic()
        revoke(broker, "poll", TOPIC)
        answer = client.receive(FetchRequest, 11)
        assert answer.responses[0].partitions[0].error_code == DENIED_TOPIC
        assert time.monotonic() - began < 5


def test_a_group_member(broker: Broker) -> None:
    topic = new_topic(broker, "grouped")
    allow(broker, "member", TOPIC, topic, READ)
    allow(broker, "member", GROUP, "group", READ)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "member",
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        where = TopicPartition(topic, 0, 1)
        consumer.commit(offsets=[where], asynchronous=False)
        revoke(broker, "member", GROUP)
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=[where], asynchronous=False)
        assert caught.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()
    revoke(broker, "member", TOPIC)


def test_a_subscription_by_pattern_has_the_topics_that_its_member_may_describe(
    broker: Broker,
) -> None:
    first, second = new_topic(broker, "seen-first"), new_topic(broker, "seen-second")
    allow(broker, "watcher", GROUP, "watching", READ)
    allow(broker, "watcher", TOPIC, first, READ)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "watcher",
            "group.id": "watching",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )

    def wait_assigned(*topics: str) -> None:
        deadline = time.monotonic() + 60
        while {each.topic for each in consumer.assignment()} != set(topics):
            consumer.poll(0.1)
            assert time.monotonic() < deadline, consumer.assignment()

    try:
        consumer.subscribe(["^seen-.*"])
        wait_assigned(first)
        allow(broker, "watcher", TOPIC, second, READ)
        wait_assigned(first, second)
        revoke(broker, "watcher", TOPIC, matching=2)
        wait_assigned()
    finally:
        consumer.close()
    revoke(broker, "watcher", GROUP)


def test_a_transaction(broker: Broker) -> None:
    topic = new_topic(broker, "transactions")
    allow(broker, "payer", TOPIC, topic, WRITE)
    allow(broker, "payer", TRANSACTIONAL_ID, "payment", WRITE)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "payer",
            "transactional.id": "payment",
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    revoke(broker, "payer", TRANSACTIONAL_ID)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert caught.value.args[0].fatal()


def test_a_confluent_producer_is_told(broker: Broker) -> None:
    topic = new_topic(broker, "written")
    allow(broker, "writer", TOPIC, topic, WRITE)
    codes: list[int | None] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "writer",
            "acks": 1,
            "linger.ms": 0,
        }
    )

    def write() -> int | None:
        producer.produce(
            topic,
            b"v",
            on_delivery=lambda error, _: codes.append(None if error is None else error.code()),
        )
        assert producer.flush(30) == 0
        return codes[-1]

    for _ in range(50):
        assert write() is None
    revoke(broker, "writer", TOPIC)
    assert write() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_only_what_was_asked_for_is_in_the_audit_log(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(broker, "audited")
    allow(broker, "reader", TOPIC, topic, READ)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    wanted = FetchTopic(topic=topic, partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted])
    with RawClient(broker.bootstrap, client_id="reader") as client:
        client.ask(request, 11)
        assert "denied User:reader" not in caplog.text
        revoke(broker, "reader", TOPIC)
        for _ in range(3):
            client.ask(request, 11)
    denied = [line for line in caplog.messages if "denied User:reader" in line]
    assert denied == ["denied User:reader from 127.0.0.1: READ on TOPIC 'audited'"]
