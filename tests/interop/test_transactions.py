"""Transactions with the clients that people use: what they commit is read, once."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.clients.transactional import (
    AioTransactions,
    ConfluentTransactions,
    JavaTransactions,
    KafkaPythonTransactions,
    TransactionalProducer,
)
from tests.support.apache_kafka import ApacheKafka, dump_log_segments
from tests.support.jars import classpath
from tests.support.java_client import JavaClient
from tests.support.node import MillstreamNode
from tests.support.tools import require, run_checked

NewProducer = Callable[[str], TransactionalProducer]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("transactions")
    with MillstreamNode(folder / "data") as node:
        yield node.bootstrap


@pytest.fixture(scope="module")
def java(bootstrap: str) -> Iterator[JavaClient]:
    with JavaClient(bootstrap) as client:
        yield client


@pytest.fixture(params=["java", "confluent-kafka", "aiokafka", "kafka-python"])
def producer_of(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[NewProducer]:
    made: list[TransactionalProducer] = []

    def new(transactional_id: str) -> TransactionalProducer:
        producer: TransactionalProducer
        if request.param == "java":
            producer = JavaTransactions(request.getfixturevalue("java"), transactional_id)
        elif request.param == "confluent-kafka":
            producer = ConfluentTransactions(bootstrap, transactional_id)
        elif request.param == "aiokafka":
            producer = AioTransactions(bootstrap, transactional_id)
        else:
            producer = KafkaPythonTransactions(bootstrap, transactional_id)
        made.append(producer)
        return producer

    yield new
    for producer in made:
        producer.close()


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def create(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(20)


def read(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes]:
    """Everything up to the end that a reader of this kind has."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "neither a record nor the end"
        if message.error():
            break
        values.append(message.value())
    consumer.close()
    return values


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    [found] = consumer.committed([TopicPartition(topic, 0)], 20)
    consumer.close()
    return int(found.offset)


def test_committed_records_are_read_and_aborted_ones_are_not(
    bootstrap: str, producer_of: NewProducer, name: str
) -> None:
    create(bootstrap, name)
    producer = producer_of(name)
    for number in range(6):
        producer.begin()
        producer.send(name, [f"{number}-{i}".encode() for i in range(3)])
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    everything = [f"{number}-{i}".encode() for number in range(6) for i in range(3)]
    assert read(bootstrap, name, committed=False) == everything
    assert read(bootstrap, name) == [value for value in everything if int(value[:1]) % 2 == 0]


def test_nothing_of_an_open_transaction_is_read(
    bootstrap: str, producer_of: NewProducer, name: str
) -> None:
    create(bootstrap, name)
    producer = producer_of(name)
    producer.begin()
    producer.send(name, [b"open"])
    assert read(bootstrap, name) == []
    assert read(bootstrap, name, committed=False) == [b"open"]
    producer.commit()
    assert read(bootstrap, name) == [b"open"]


def test_offsets_are_committed_with_the_transaction_and_only_then(
    bootstrap: str, producer_of: NewProducer, name: str
) -> None:
    source, target = f"{name}-in", f"{name}-out"
    create(bootstrap, source, target)
    producer = producer_of(name)
    producer.begin()
    producer.send(source, [b"a", b"b", b"c"])
    producer.commit()
    producer.begin()
    producer.send(target, [b"A"])
    producer.send_offset(name, source, 1)
    producer.commit()
    assert committed_offset(bootstrap, name, source) == 1
    producer.begin()
    producer.send(target, [b"B"])
    producer.send_offset(name, source, 2)
    producer.abort()
    assert committed_offset(bootstrap, name, source) == 1
    assert read(bootstrap, target) == [b"A"]


def test_a_group_member_consumes_transforms_and_produces(bootstrap: str, name: str) -> None:
    source, target = f"{name}-in", f"{name}-out"
    create(bootstrap, source, target)
    writer = ConfluentTransactions(bootstrap, f"{name}-writer")
    for number in range(4):
        writer.begin()
        writer.send(source, [b"%d-%d" % (number, i) for i in range(10)])
        if number % 2:
            writer.abort()
        else:
            writer.commit()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(20)
    copied = 0
    while copied < 20:
        messages = consumer.consume(7, timeout=2)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value().upper(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
        )
        producer.commit_transaction(20)
        copied += len(messages)
    consumer.close()
    assert read(bootstrap, target) == [b"%d-%d" % (n, i) for n in (0, 2) for i in range(10)]
    # Behind the last record lie its marker, and an aborted transaction with its own.
    assert committed_offset(bootstrap, name, source) >= 32


def test_the_older_of_two_producers_with_one_id_is_fenced(
    bootstrap: str, producer_of: NewProducer, name: str
) -> None:
    create(bootstrap, name)
    older, newer = producer_of(name), producer_of(name)
    older.begin()
    older.send(name, [b"lost"])
    newer.begin()
    newer.send(name, [b"kept"])
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|transition"):
        older.commit()
    newer.commit()
    assert read(bootstrap, name) == [b"kept"]
    assert read(bootstrap, name, committed=False) == [b"lost", b"kept"]


def test_javas_tools_see_transactions_and_end_them(
    bootstrap: str, java: JavaClient, name: str
) -> None:
    create(bootstrap, name)
    producer = JavaTransactions(java, name)
    producer.begin()
    producer.send(name, [b"x"])
    assert java.call("transactions")["states"][name] == "Ongoing"
    told = java.call("describe_transaction", id=name)
    assert (told["state"], told["partitions"]) == ("Ongoing", [f"{name}-0"])
    assert java.call("producers", topic=name)["starts"] == [0]
    java.call("fence", id=name)
    assert java.call("producers", topic=name)["starts"] == [-1]
    assert read(bootstrap, name) == []
    producer.close()


def test_kafka_reads_our_transaction_records_and_our_files(tmp_path: Path, name: str) -> None:
    data_dir = tmp_path / "data"
    options = ("--set", "transaction.state.log.num.partitions=1")
    with MillstreamNode(data_dir, *options) as node:
        create(node.bootstrap, name)
        producer = ConfluentTransactions(node.bootstrap, name)
        for number in range(3):
            producer.begin()
            producer.send(name, [b"%d" % number])
            if number == 1:
                producer.abort()
            else:
                producer.commit()
    told = run_checked(
        [
            *(require("java"), "-Xmx256m", "-cp", classpath()),
            "org.apache.kafka.tools.DumpLogSegments",
            *("--transaction-log-decoder", "--files"),
            str(data_dir / "__transaction_state-0" / f"{0:020}.log"),
        ],
        timeout_seconds=120,
    )
    assert f'"transactionalId":"{name}"' in told
    # Ongoing, then both ways to an end.
    for status in (0, 1, 2, 4, 3, 5):
        assert f'"transactionStatus":{status},' in told
    folder = data_dir / f"{name}-0"
    files = [path for path in folder.iterdir() if path.suffix in (".log", ".txnindex", ".snapshot")]
    shown = dump_log_segments(files, index_sanity=True)
    assert shown.count("endTxnMarker: COMMIT") == 2
    assert shown.count("endTxnMarker: ABORT") == 1
    assert "firstOffset: 2" in shown or "firstOffset=2" in shown


# Names whose hash in Java is positive and negative: they must be found where Kafka put them.
@pytest.mark.parametrize("name", ["t-1", "t-9d5841e6"])
def test_transactions_go_from_kafka_to_us_and_back(tmp_path: Path, name: str) -> None:
    """Kafka leaves one open; we go on with it, leave another, and Kafka goes on with that."""
    data_dir = tmp_path / "data"
    with ApacheKafka(data_dir) as kafka:
        create(kafka.bootstrap, name)
        first = ConfluentTransactions(kafka.bootstrap, name)
        for value, is_kept in ((b"kept by Kafka", True), (b"aborted by Kafka", False)):
            first.begin()
            first.send(name, [value])
            if is_kept:
                first.send_offset(name, name, 1)
                first.commit()
            else:
                first.abort()
        first.begin()
        first.send(name, [b"left open by Kafka"])
    with MillstreamNode(data_dir, "--adopt") as node:
        assert read(node.bootstrap, name) == [b"kept by Kafka"]
        assert committed_offset(node.bootstrap, name, name) == 1
        second = ConfluentTransactions(node.bootstrap, name)
        second.begin()
        second.send(name, [b"kept by us"])
        second.send_offset(name, name, 2)
        second.commit()
        ours = [b"kept by Kafka", b"kept by us"]
        assert read(node.bootstrap, name) == ours
        second.begin()
        second.send(name, [b"left open by us"])
        second.send_offset(name, name, 99)
    with ApacheKafka(data_dir) as kafka:
        assert read(kafka.bootstrap, name) == ours
        third = ConfluentTransactions(kafka.bootstrap, name)
        third.begin()
        third.send(name, [b"kept by Kafka again"])
        third.commit()
        assert read(kafka.bootstrap, name) == [*ours, b"kept by Kafka again"]
        assert committed_offset(kafka.bootstrap, name, name) == 2
