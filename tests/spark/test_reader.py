"""Batch reads: what is planned, and what Spark may do with it."""

import json
import pickle

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition

from millstream.spark.failure import SourceError
from millstream.spark.option_table import Use
from millstream.spark.options import parse_read_options
from millstream.spark.reader import BatchReader
from millstream.spark.source import batch_reader, read_schema
from millstream.testing.plugin import MakeTopic
from tests.spark.conftest import Produce
from tests.support.broker import Broker


def reader(kafka: Broker, **options: str) -> BatchReader:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, **options}
    return BatchReader(parse_read_options(CaseInsensitiveDict(given), Use.BATCH_READ))


def values(source: BatchReader) -> list[bytes]:
    found = []
    for partition in source.partitions():
        # Spark sends both to another process.
        copy, work = pickle.loads(pickle.dumps((source, partition)))
        for batch in copy.read(work):
            found += batch.column("value").to_pylist()
    return found


def test_filters_are_not_pushed_because_spark_refuses_reads_where_they_are() -> None:
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


def test_nothing_to_read_is_an_empty_table(kafka: Broker, make_topic: MakeTopic) -> None:
    source = reader(kafka, subscribe=make_topic())
    assert source.partitions() == []
    # What Spark then plans instead.
    assert list(source.read(InputPartition(None))) == []


def test_ends_and_starts_by_offset_and_time_are_kept(
    kafka: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    for number in range(6):
        produce(topic, [b"%d" % number], timestamp=1_000 * (number + 1))
    produce(topic, [b"other"], partition=1, timestamp=3_000)
    by_offset = {
        "startingOffsets": f'{{"{topic}":{{"0":1,"1":-2}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":-1,"1":0}}}}',
    }
    assert values(reader(kafka, subscribe=topic, **by_offset)) == [b"1", b"2", b"3", b"4", b"5"]
    by_time = {"startingTimestamp": "2500", "endingTimestamp": "4500"}
    assert sorted(values(reader(kafka, subscribe=topic, **by_time))) == [b"2", b"3", b"other"]
    assert values(reader(kafka, assign=f'{{"{topic}":[1]}}')) == [b"other"]


def test_offsets_must_name_exactly_the_partitions_that_are_read(
    kafka: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    for text, named in (('{"%s":{"0":1}}', f"{topic}-1"), ('{"%s":{"0":1,"1":1,"2":1}}', "-2")):
        with pytest.raises(SourceError, match=named):
            reader(kafka, subscribe=topic, startingOffsets=text % topic).partitions()


def test_a_pattern_leaves_out_the_topics_of_the_brokers_themselves(
    kafka: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [b"a"])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "of-the-pattern"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    assert values(reader(kafka, subscribePattern=f"{topic}|__.*")) == [b"a"]


def test_tasks_are_as_many_as_asked_for(
    kafka: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [b"%d" % number for number in range(100)])
    many = reader(kafka, subscribe=topic, minPartitions="4")
    assert len(many.partitions()) == 4
    assert values(many) == [b"%d" % number for number in range(100)]
    assert len(reader(kafka, subscribe=topic, maxRecordsPerPartition="30").partitions()) == 4


def test_a_schema_of_ones_own_is_refused(kafka: Broker) -> None:
    options = CaseInsensitiveDict({"subscribe": "t", "includeHeaders": "true"})
    with pytest.raises(SourceError, match="columns"):
        batch_reader(options, read_schema({}))


def test_offsets_that_are_not_in_the_log_are_refused_before_any_task_runs(
    kafka: Broker, make_topic: MakeTopic, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    produce(topic, [b"%d" % number for number in range(10)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    done.result(10)

    def offsets(number: int) -> str:
        return json.dumps({topic: {"0": number}})

    with pytest.raises(SourceError, match=r"startingOffsets.*ends at offset 10, before 11"):
        reader(kafka, subscribe=topic, startingOffsets=offsets(11)).partitions()
    with pytest.raises(SourceError, match=r"endingOffsets.*ends at offset 10, before 11"):
        reader(kafka, subscribe=topic, endingOffsets=offsets(11)).partitions()
    lost = f"{topic}-0 begins at offset 4, requested was 3"
    with pytest.raises(SourceError, match=f"{lost}.*failOnDataLoss"):
        reader(kafka, subscribe=topic, startingOffsets=offsets(3)).partitions()
    bounds = {"startingOffsets": offsets(3), "endingOffsets": offsets(6)}
    allowed = reader(kafka, subscribe=topic, failOnDataLoss="false", **bounds)
    assert values(allowed) == [b"4", b"5"]
    assert f"{lost}; continuing, because failOnDataLoss is false" in caplog.messages
    for bounds, expected in (
        ({"startingOffsets": offsets(8), "endingOffsets": offsets(99)}, [b"8", b"9"]),
        ({"startingOffsets": offsets(11)}, []),
    ):
        caplog.clear()
        allowed = reader(kafka, subscribe=topic, failOnDataLoss="false", **bounds)
        assert values(allowed) == expected
        assert f"{topic}-0 ends at offset 10, before" in caplog.text
