"""Ranges of a partition come whole, whatever compaction, transactions and brokers do."""

import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.client.blocking import Address
from millstream.client.fetch import Fetched
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.records.columns import decode
from millstream.spark import fetching
from millstream.spark.cluster import ClientSettings, Cluster, FetchSettings
from millstream.spark.failure import SourceError, Unreachable
from millstream.spark.fetching import read_range
from millstream.spark.ranges import OffsetRange
from millstream.testing.plugin import MakeTopic
from millstream.wire.cursor import Cursor
from tests.spark.conftest import Produce
from tests.support.broker import Broker
from tests.support.node import MillstreamNode


def cluster_of(bootstrap: str, **settings: float) -> Cluster:
    host, _, port = bootstrap.rpartition(":")
    return Cluster(ClientSettings((Address(host, int(port)),), **settings))


def values_of(
    cluster: Cluster, topic: str, from_offset: int, upto_offset: int, **settings: object
) -> list[bytes]:
    wanted = OffsetRange(TopicPartition(topic, 0), NO_TOPIC_ID, from_offset, upto_offset)
    found = []
    for part in read_range(cluster, wanted, FetchSettings(**settings)):
        for batch in part.batches:
            columns = decode(batch.bytes, from_offset=part.from_offset, upto_offset=upto_offset)
            ends = memoryview(columns.value_ends).cast("i")
            data = columns.value_data
            found += [data[ends[n] : ends[n + 1]] for n in range(columns.count)]
    return found


@pytest.fixture
def cluster(kafka: Broker) -> Cluster:
    return cluster_of(kafka.bootstrap)


def test_a_range_inside_batches_is_cut_to_size(
    cluster: Cluster, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    for first in range(0, 100, 10):
        produce(topic, [b"%d" % number for number in range(first, first + 10)])
    expected = [b"%d" % number for number in range(13, 77)]
    assert values_of(cluster, topic, 13, 77) == expected
    # Many answers, each with the batch that is larger than allowed.
    assert values_of(cluster, topic, 13, 77, response_bytes_max=200) == expected


def test_a_new_leader_whose_high_watermark_is_behind_is_waited_for(
    cluster: Cluster, make_topic: MakeTopic, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    produce(topic, [b"%d" % number for number in range(10)])
    behind = Fetched(topic, 0, KafkaCode.NONE, 3, 0, [], memoryview(b""))
    answers = [behind, behind]
    read_answer = fetching._read_answer

    def read(cursor: Cursor, version: int) -> Fetched:
        return answers.pop() if answers else read_answer(cursor, version)

    monkeypatch.setattr(fetching, "_read_answer", read)
    assert values_of(cluster, topic, 5, 10) == [b"%d" % number for number in range(5, 10)]
    assert not answers


def test_a_log_that_got_shorter_is_lost_data(
    cluster: Cluster, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [b"x"])
    with pytest.raises(SourceError, match="ends before offset 5"):
        values_of(cluster, topic, 5, 10)
    assert values_of(cluster, topic, 5, 10, fails_on_data_loss=False) == []


def transactional_producer(kafka: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    return producer


def test_readers_of_committed_data_see_no_aborted_rows_and_stop_at_no_marker(
    kafka: Broker, cluster: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = transactional_producer(kafka, topic)
    for number, is_committed in enumerate([True, False, True, False]):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number)
        producer.flush(20)
        if is_committed:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    # Four records and four markers; the range ends in the last marker.
    assert values_of(cluster, topic, 0, 8, is_committed_only=True) == [b"0", b"2"]
    assert values_of(cluster, topic, 0, 8) == [b"0", b"1", b"2", b"3"]
    assert values_of(cluster, topic, 3, 8, is_committed_only=True) == [b"2"]


def test_a_topic_that_is_gone_ends_the_range_or_fails_it(
    kafka: Broker, cluster: Cluster, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [b"x"])
    kafka.delete_topic(topic)
    assert values_of(cluster, topic, 0, 1, fails_on_data_loss=False) == []
    with pytest.raises(SourceError, match="failOnDataLoss"):
        values_of(cluster, topic, 0, 1)
    kafka.create_topic(topic)


@pytest.mark.slow
def test_a_broker_that_goes_and_comes_back_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MillstreamNode(tmp_path / "data", "--dev") as node:
        settings = {"bootstrap.servers": node.bootstrap, "log_level": 0}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
        producer = Producer(settings)
        for number in range(10):
            producer.produce("t", value=b"%d" % number)
            assert producer.flush(20) == 0
        wanted = OffsetRange(TopicPartition("t", 0), NO_TOPIC_ID, 0, 10)
        reading = read_range(
            cluster_of(node.bootstrap), wanted, FetchSettings(response_bytes_max=1)
        )
        first = next(reading)
        # A caller that takes its time, longer than a stall may last.
        monotonic = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 1_000)
        node.stop()
        node.start()
        rest = list(reading)
    offsets = [batch.base_offset for part in (first, *rest) for batch in part.batches]
    assert offsets == list(range(10))


def test_a_broker_that_stays_away_is_given_up_with_the_reason() -> None:
    # Taken, but nobody listens.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        cluster = cluster_of(f"127.0.0.1:{port}", call_seconds_max=0.2)
        with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}"):
            cluster.describe_topics(["t"])
        with pytest.raises(Unreachable, match="pollTimeoutMs"):
            values_of(cluster, "t", 0, 1, stall_seconds_max=0.2)
