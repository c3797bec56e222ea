"""Rows reach their topics once, as records that Kafka's own producer would have made."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from millstream.spark import exactly_once, partition_queue, producing
from millstream.spark.failure import SourceError
from millstream.spark.option_table import Use
from millstream.spark.source import batch_writer
from millstream.spark.write_options import WriteOptions, parse_write_options
from millstream.spark.writer import BatchWriter
from millstream.testing.plugin import MakeTopic
from tests.spark.conftest import consume
from tests.support.broker import Broker
from tests.support.node import MillstreamNode

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
EVERY = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
VALUE = StructType([StructField("value", StringType())])
MakeWriter = Callable[..., BatchWriter]


@pytest.fixture
def writer(kafka: Broker) -> MakeWriter:
    def make(schema: StructType = VALUE, **options: str) -> BatchWriter:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, **options}
        return batch_writer(CaseInsensitiveDict(given), schema, overwrite=False)

    return make


def values(*texts: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": pa.array(texts, pa.string())})])


def committed(kafka: Broker, topic: str) -> list[bytes]:
    return consume(kafka.bootstrap, topic, partitions=1, isolation="read_committed")


def test_all_columns_arrive(kafka: Broker, make_topic: MakeTopic, writer: MakeWriter) -> None:
    topic = make_topic(partitions=3)
    headers_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array(["v", None], pa.string()),
            "topic": pa.array([topic, topic]),
            "partition": pa.array([2, 2], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], headers_type),
        }
    )
    one = writer(EVERY)
    one.commit([one.write(iter([rows]))])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})
    consumer.assign([TopicPartition(topic, 2, 0)])
    first, second = consumer.poll(10), consumer.poll(10)
    consumer.close()
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", [("h", b"1")])
    assert (second.key(), second.value(), second.headers()) == (None, None, None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_of_a_slice_arrive_in_order_under_every_codec(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter, codec: str
) -> None:
    topic = make_topic()
    whole = pa.record_batch({"value": pa.array([str(n) for n in range(5000)], pa.string())})
    one = writer(topic=topic, **{"kafka.compression.type": codec})
    one.write(iter([whole.slice(0, 1), whole.slice(1, 2999), whole.slice(3000)]))
    assert [int(value) for value in committed(kafka, topic)] == list(range(5000))


def test_a_topic_with_a_smaller_limit_gets_smaller_batches(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter
) -> None:
    topic = make_topic(configs={"max.message.bytes": "2000"})
    writer(topic=topic).write(values(*(f"{n:0100d}" for n in range(100))))
    assert [int(value) for value in committed(kafka, topic)] == list(range(100))
    with pytest.raises(SourceError, match=r"max\.message\.bytes"):
        writer(topic=topic).write(values("x" * 3000))


def test_rows_without_a_key_are_spread_over_the_partitions(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter
) -> None:
    topic = make_topic(partitions=4)
    batches = [next(values("x")) for _ in range(8)]
    writer(topic=topic).write(iter(batches))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})
    counts = [
        consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in range(4)
    ]
    consumer.close()
    assert counts == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("schema", "options", "named"),
    [
        (StructType([]), {"topic": "t"}, "'value'"),
        (StructType([StructField("value", LongType())]), {"topic": "t"}, "CAST"),
        (VALUE, {}, "'topic'"),
        (StructType([*VALUE, StructField("key", LongType())]), {"topic": "t"}, "'key'"),
        (EVERY, {"topic": "a b"}, "topic"),
        (VALUE, {"topic": "t", "semantics": "twice"}, "semantics"),
        (VALUE, {"topic": "t", "kafka.acks": "0"}, "kafka.acks"),
        (VALUE, {"topic": "t", "kafka.compression.type": "rar"}, "kafka.compression.type"),
        (VALUE, {"topic": "t", "semantics": "exactly-once", "kafka.acks": "1"}, "kafka.acks"),
        (VALUE, {"topic": "t", "subscribe": "t"}, "subscribe"),
        (VALUE, {"topic": "t", "kafka.value.serializer": "x"}, "kafka.value.serializer"),
    ],
)
def test_what_is_wrong_is_named_before_any_row_moves(
    schema: StructType, options: dict[str, str], named: str
) -> None:
    given = CaseInsensitiveDict({"kafka.bootstrap.servers": "127.0.0.1:1", **options})
    with pytest.raises(SourceError, match=named):
        parse_write_options(given, schema, Use.BATCH_WRITE)


def test_asynchronous_progress_is_refused_where_batches_must_keep_their_number() -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "asyncProgressTrackingEnabled": "true",
    }
    with pytest.raises(SourceError, match="asyncProgressTrackingEnabled"):
        parse_write_options(CaseInsensitiveDict(options), VALUE, Use.STREAM_WRITE)
    options["semantics"] = "at-least-once"
    assert parse_write_options(CaseInsensitiveDict(options), VALUE, Use.STREAM_WRITE)


def test_a_missing_topic_and_an_overwrite_are_refused(kafka: Broker, writer: MakeWriter) -> None:
    with pytest.raises(SourceError, match="Topic absent does not exist"):
        writer(topic="absent")
    with pytest.raises(SourceError, match="append"):
        batch_writer(CaseInsensitiveDict({"topic": "t"}), VALUE, overwrite=True)


# -- exactly once ----------------------------------------------------------------------------


def exactly_once_writer(make: MakeWriter, topic: str, batch_id: int, **more: str) -> BatchWriter:
    options = {"topic": topic, "semantics": "exactly-once", "queryId": topic, **more}
    return make(VALUE, batchId=str(batch_id), **options)


def test_a_batch_is_not_seen_before_its_commit_and_once_after_two(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter
) -> None:
    topic = make_topic()
    one = exactly_once_writer(writer, topic, 0)
    messages = [one.write(values("a")), one.write(values("b", "c")), one.write(iter([]))]
    assert committed(kafka, topic) == []
    one.commit(messages)
    # Spark repeats a batch when it did not hear of the commit; and it may call abort.
    one.abort(messages)
    again = exactly_once_writer(writer, topic, 0)
    again.commit([again.write(values("a", "b", "c"))])
    assert committed(kafka, topic) == [b"a", b"b", b"c"]


@pytest.fixture
def large_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "CARRIED_BYTES_MAX", 10)


@pytest.mark.usefixtures("large_tasks")
def test_large_tasks_write_themselves_and_become_visible_with_the_small_ones(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter
) -> None:
    topic = make_topic()
    one = exactly_once_writer(writer, topic, 0)
    large = one.write(values("x" * 100, "y" * 100))
    small = one.write(values("z"))
    assert isinstance(large, exactly_once.OpenTransaction)
    assert isinstance(small, exactly_once.CarriedRows)
    assert committed(kafka, topic) == []
    one.commit([large, small])
    one.abort([large, small])
    assert sorted(committed(kafka, topic)) == [b"x" * 100, b"y" * 100, b"z"]
    # A repeat of the batch is drained without being written.
    repeat = one.write(values("x" * 100))
    assert isinstance(repeat, exactly_once.CarriedRows)
    one.commit([repeat])
    assert len(committed(kafka, topic)) == 3


@pytest.mark.usefixtures("large_tasks")
def test_an_attempt_that_is_not_in_the_commit_is_never_seen(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter
) -> None:
    topic = make_topic()
    one = exactly_once_writer(writer, topic, 0)
    lost = one.write(values("lost" * 10))
    kept = one.write(values("kept" * 10))
    assert lost != kept
    one.commit([kept])
    assert committed(kafka, topic) == [b"kept" * 10]


@pytest.mark.usefixtures("large_tasks")
def test_a_broker_without_the_group_commit_fails_large_tasks_with_the_remedy(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    monkeypatch.setattr(exactly_once, "offers_group_commit", lambda cluster: False)
    one = exactly_once_writer(writer, topic, 0)
    with pytest.raises(SourceError, match="maxOffsetsPerTrigger"):
        one.write(values("x" * 100))
    for batch_id in (0, 0, 1):
        each = exactly_once_writer(writer, topic, batch_id)
        each.commit([each.write(values("a"))])
    assert committed(kafka, topic) == [b"a", b"a"]


def test_a_commit_that_fails_holds_up_no_reader_of_committed_data(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter
) -> None:
    topic = make_topic(configs={"max.message.bytes": "2000"})
    one = exactly_once_writer(writer, topic, 0)
    with pytest.raises(SourceError, match=r"max\.message\.bytes"):
        one.commit([one.write(values("small", "x" * 3000))])
    writer(topic=topic).write(values("of others"))
    assert committed(kafka, topic) == [b"of others"]


def test_a_driver_that_was_replaced_cannot_commit(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    zombie, successor = (exactly_once_writer(writer, topic, 0) for _ in range(2))
    rows = zombie.write(values("zombie"))

    def commit_of_the_successor_comes_between(*_: object) -> bool:
        monkeypatch.undo()
        successor.commit([successor.write(values("successor"))])
        return False

    monkeypatch.setattr(exactly_once, "_is_done", commit_of_the_successor_comes_between)
    with pytest.raises(SourceError):
        zombie.commit([rows])
    assert committed(kafka, topic) == [b"successor"]


def of_run(message: WriterCommitMessage, run_id: str) -> WriterCommitMessage:
    """The message as a task of that run would have sent it."""
    assert isinstance(message, exactly_once.CarriedRows | exactly_once.OpenTransaction)
    message.context = replace(message.context, run_id=run_id)
    return message


def test_a_driver_of_an_older_run_is_refused_and_does_not_disturb_the_newer(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    first, second = (exactly_once_writer(writer, topic, 0) for _ in range(2))
    first.commit([of_run(first.write(values("0")), "old run")])
    late = exactly_once_writer(writer, topic, 1)
    rows = of_run(late.write(values("late")), "old run")
    is_done = exactly_once._is_done

    def zombie_comes_between(*arguments: object) -> bool:
        monkeypatch.undo()
        with pytest.raises(SourceError, match="started again elsewhere"):
            late.commit([rows])
        return is_done(*arguments)

    # The newer run has its transaction open at that moment.
    monkeypatch.setattr(exactly_once, "_is_done", zombie_comes_between)
    second = exactly_once_writer(writer, topic, 1)
    second.commit([of_run(second.write(values("1")), "new run")])
    assert committed(kafka, topic) == [b"0", b"1"]
    # Also what is only a repeat: its query would go on with the next batch.
    again = exactly_once_writer(writer, topic, 1)
    with pytest.raises(SourceError, match="old run"):
        again.commit([of_run(again.write(values("1")), "old run")])


@pytest.mark.usefixtures("large_tasks")
def test_a_task_of_an_older_run_writes_nothing(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    run_id = "old run"

    def context(options: WriteOptions) -> exactly_once.BatchContext:
        assert options.query_id is not None
        assert options.batch_id is not None
        return exactly_once.BatchContext(options.query_id, run_id, options.batch_id)

    monkeypatch.setattr(exactly_once, "find_context", context)
    zombie, successor = (exactly_once_writer(writer, topic, 0) for _ in range(2))
    left_open = zombie.write(values("zombie" * 10))
    run_id = "new run"
    # Already its first task takes over, before anything is committed.
    message = successor.write(values("successor" * 10))
    run_id = "old run"
    with pytest.raises(SourceError, match="old run"):
        zombie.write(values("zombie" * 10))
    with pytest.raises(SourceError, match="old run"):
        zombie.commit([left_open])
    successor.commit([message])
    assert committed(kafka, topic) == [b"successor" * 10]


def test_two_names_are_two_outputs_of_one_batch(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter
) -> None:
    topic = make_topic()
    for name in ("one", "two", "one"):
        each = exactly_once_writer(writer, topic, 0, sinkName=name)
        each.commit([each.write(values(name))])
    assert committed(kafka, topic) == [b"one", b"two"]


def test_outside_of_a_micro_batch_exactly_once_is_refused(
    make_topic: MakeTopic, writer: MakeWriter
) -> None:
    with pytest.raises(SourceError, match="at-least-once"):
        writer(topic=make_topic(), semantics="exactly-once").write(values("a"))


def test_a_job_group_in_place_of_sparks_own_is_refused(
    make_topic: MakeTopic, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same in every run: a repeat after a crash would be taken for a second write.
    told = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0", "spark.jobGroup.id": "mine"}
    task = SimpleNamespace(getLocalProperty=told.get)
    monkeypatch.setattr(exactly_once, "TaskContext", SimpleNamespace(get=lambda: task))
    one = writer(topic=make_topic(), semantics="exactly-once")
    with pytest.raises(SourceError, match="setJobGroup"):
        one.write(values("a"))
    told["spark.jobGroup.id"] = str(uuid.uuid4())
    message = one.write(values("a"))
    assert isinstance(message, exactly_once.CarriedRows)
    assert message.context.run_id == told["spark.jobGroup.id"]


def test_batches_of_a_partition_have_growing_sequence_numbers(
    kafka: Broker, make_topic: MakeTopic, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    build = partition_queue.build_batch_of_rows

    def remember(records: bytes, count: int, **fields: object) -> bytearray:
        seen.append((fields["base_sequence"], count))
        return build(records, count, **fields)

    monkeypatch.setattr(partition_queue, "build_batch_of_rows", remember)
    topic = make_topic(configs={"max.message.bytes": "100000"})
    writer(topic=topic, **{"kafka.max.request.size": "3000"}).write(
        values(*(f"{n:0100d}" for n in range(100)))
    )
    assert len(seen) > 2
    assert all(one[0] + one[1] == next_one[0] for one, next_one in pairwise(seen))


@pytest.mark.slow
# Every batch is taken before the next is asked for; and none before the last.
@pytest.mark.parametrize("backlog_bytes", [0, 8 << 20])
def test_a_node_that_is_killed_while_rows_are_written_loses_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backlog_bytes: int
) -> None:
    monkeypatch.setattr(producing, "BACKLOG_BYTES_MAX", backlog_bytes)
    with MillstreamNode(tmp_path / "data", "--dev") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(20):
                if number in (5, 12):
                    node.kill()
                    node.start()
                yield from values(*(str(number * 100 + n) for n in range(100)))

        options = {"kafka.bootstrap.servers": node.bootstrap, "topic": "t"}
        batch_writer(CaseInsensitiveDict(options), VALUE, overwrite=False).write(batches())
        found = consume(node.bootstrap, "t", partitions=1, isolation="read_committed")
    assert [int(value) for value in found] == list(range(2000))
