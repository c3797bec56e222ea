"""Every client does the same things with the broker; one class per client.

The bodies live in `DataTests` and `AdminTests`. Consumers use assign: no groups here.
Run with --against-kafka, the same tests prove themselves on Apache Kafka.
"""

import time
import uuid
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

import pytest

from tests.interop.clients.aio import AioKafka
from tests.interop.clients.base import CODECS, AdminClient, Client, Message, Refused
from tests.interop.clients.confluent import ConfluentKafka
from tests.interop.clients.java import Java
from tests.interop.clients.kafka_python import KafkaPython
from tests.interop.clients.kcat import Kcat

FIVE_MEGABYTES = 5_000_000
C = TypeVar("C", bound=Client)


class WithClient(Generic[C]):
    client_class: ClassVar[type[Client]]

    @pytest.fixture(scope="class")
    def client(self, bootstrap: str) -> Iterator[C]:
        client = self.client_class(bootstrap)
        yield client  # type: ignore[misc]  # each class names its own client
        client.close()

    @pytest.fixture
    def topic(self, bootstrap: str) -> str:
        """A topic with one partition, made by a client known to work."""
        name = f"interop-{uuid.uuid4().hex[:12]}"
        ConfluentKafka(bootstrap).create_topic(name, configs={"max.message.bytes": "20000000"})
        return name


class DataTests(WithClient[C]):
    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_as_they_were_sent(self, client: C, topic: str, codec: str) -> None:
        sent = [Message(f"value {i} ".encode() * 20, key=f"key {i}".encode()) for i in range(50)]
        assert client.produce(topic, sent, codec=codec) == list(range(50))
        assert [_plain(message) for message in client.consume(topic, count=50)] == sent

    def test_headers_keep_order_duplicates_and_nulls(self, client: C, topic: str) -> None:
        third = ("third", None if client.sends_null_headers else b"3")
        headers = (("trace", b"one"), ("trace", b"two"), third, ("last", b"z"))
        client.produce(topic, [Message(b"v", key=b"k", headers=headers)])
        [received] = client.consume(topic, count=1)
        assert received.headers == headers

    def test_null_keys_and_null_values_stay_null(self, client: C, topic: str) -> None:
        sent = [Message(b"v"), Message(None, key=b"k"), Message(b"v", key=b"k")]
        client.produce(topic, sent)
        assert [_plain(message) for message in client.consume(topic, count=3)] == sent

    @pytest.mark.parametrize("codec", ["none", "lz4"])
    def test_records_from_one_byte_to_five_megabytes(
        self, client: C, topic: str, codec: str
    ) -> None:
        sizes = [1, 100, 10_000, 1_000_000, FIVE_MEGABYTES]
        sent = [Message(_varied_bytes(size)) for size in sizes]
        client.produce(topic, sent, codec=codec)
        received = client.consume(topic, count=len(sizes))
        assert [len(message.value or b"") for message in received] == sizes
        assert [_plain(message) for message in received] == sent

    def test_order_is_kept_over_many_batches(self, client: C, topic: str) -> None:
        for start in range(0, 1500, 500):
            client.produce(topic, [Message(b"%d" % i) for i in range(start, start + 500)])
        received = client.consume(topic, count=1500)
        assert [message.value for message in received] == [b"%d" % i for i in range(1500)]
        assert [message.offset for message in received] == list(range(1500))

    def test_seek_to_an_offset_starts_exactly_there(self, client: C, topic: str) -> None:
        client.produce(topic, [Message(b"%d" % i) for i in range(100)])
        received = client.consume(topic, count=3, offset=42)
        assert [message.value for message in received] == [b"42", b"43", b"44"]

    def test_seek_by_time_finds_the_first_record_at_or_after_it(
        self, client: C, topic: str
    ) -> None:
        start_ms = int(time.time() * 1000) - 100_000
        times = [start_ms + i * 1000 for i in range(50)]
        client.produce(topic, [Message(b"%d" % i, timestamp_ms=t) for i, t in enumerate(times)])
        assert client.offset_at(topic, times[20]) == 20
        assert client.offset_at(topic, times[20] + 1) == 21
        assert client.offset_at(topic, times[0] - 5000) == 0
        [received] = client.consume(topic, count=1, offset=client.offset_at(topic, times[33]))
        assert received.value == b"33"
        assert received.timestamp_ms == times[33]


class EmptyTests(WithClient[C]):
    """Not for kcat, which cannot tell empty from null."""

    def test_empty_keys_and_values_are_not_null(self, client: C, topic: str) -> None:
        sent = [Message(b"", key=b""), Message(b"", key=b"k"), Message(b"v", key=b"")]
        client.produce(topic, sent)
        assert [_plain(message) for message in client.consume(topic, count=3)] == sent


class AdminTests(WithClient[AdminClient]):
    @pytest.fixture
    def name(self) -> str:
        return f"admin-{uuid.uuid4().hex[:12]}"

    def test_a_created_topic_is_listed_and_described(self, client: AdminClient, name: str) -> None:
        client.create_topic(name, partitions=3)
        assert name in client.topic_names()
        assert client.partition_count(name) == 3

    def test_creating_a_topic_twice_is_refused(self, client: AdminClient, name: str) -> None:
        client.create_topic(name)
        with pytest.raises(Refused, match=r"(?i)topic_?(already_?)?exists"):
            client.create_topic(name)

    def test_topic_configs_are_kept_and_can_be_changed(
        self, client: AdminClient, name: str
    ) -> None:
        client.create_topic(name, configs={"retention.ms": "3600000"})
        assert client.topic_configs(name)["retention.ms"] == "3600000"
        client.set_config(name, name="retention.ms", value="7200000")
        configs = client.topic_configs(name)
        assert configs["retention.ms"] == "7200000"
        assert configs["cleanup.policy"] == "delete"

    def test_a_config_that_does_not_exist_is_refused(self, client: AdminClient, name: str) -> None:
        with pytest.raises(Refused, match=r"(?i)invalid_?config"):
            client.create_topic(name, configs={"no.such.config": "1"})

    def test_partitions_can_be_added(self, client: AdminClient, name: str) -> None:
        client.create_topic(name, partitions=1)
        client.add_partitions(name, total=4)
        assert client.partition_count(name) == 4

    def test_deleted_records_are_gone_and_the_rest_stays(
        self, client: AdminClient, name: str
    ) -> None:
        client.create_topic(name)
        client.produce(name, [Message(b"%d" % i) for i in range(10)])
        assert client.delete_records(name, before_offset=6) == 6
        received = client.consume(name, count=4)
        assert [message.value for message in received] == [b"6", b"7", b"8", b"9"]

    def test_a_deleted_topic_is_gone_and_can_be_created_anew(
        self, client: AdminClient, name: str
    ) -> None:
        client.create_topic(name)
        client.produce(name, [Message(b"old")])
        client.delete_topic(name)
        assert name not in client.topic_names()
        client.create_topic(name)
        assert client.produce(name, [Message(b"new")]) == [0]
        [received] = client.consume(name, count=1)
        assert received.value == b"new"


class TestConfluentKafka(DataTests[ConfluentKafka], EmptyTests[ConfluentKafka], AdminTests):
    client_class = ConfluentKafka


class TestKafkaPython(DataTests[KafkaPython], EmptyTests[KafkaPython], AdminTests):
    client_class = KafkaPython


class TestAioKafka(DataTests[AioKafka], EmptyTests[AioKafka], AdminTests):
    client_class = AioKafka


@pytest.mark.java
class TestJava(DataTests[Java], EmptyTests[Java], AdminTests):
    client_class = Java


class TestKcat(DataTests[Kcat]):
    client_class = Kcat

    def test_the_metadata_listing_shows_topics_and_partitions(
        self, client: Kcat, bootstrap: str
    ) -> None:
        name = f"listed-{uuid.uuid4().hex[:12]}"
        ConfluentKafka(bootstrap).create_topic(name, partitions=5)
        assert client.metadata()[name] == 5


def _plain(message: Message) -> Message:
    """What the sender chose: the broker's clock is not part of the comparison."""
    return Message(message.value, key=message.key, headers=message.headers)


def _varied_bytes(size: int) -> bytes:
    """Bytes without the two that separate records on kcat's input."""
    pattern = bytes(range(3, 256))
    return (pattern * (size // len(pattern) + 1))[:size]
