"""The driver's side of a stream, called as Spark calls it, without Spark."""

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millstream.spark.failure import SourceError
from millstream.spark.option_table import Use
from millstream.spark.options import parse_read_options
from millstream.spark.stream import StreamReader
from millstream.testing.plugin import MakeTopic
from tests.spark.conftest import Produce
from tests.support.broker import Broker

Offset = dict[str, object]
MakeReader = Callable[..., StreamReader]


@pytest.fixture
def reader(kafka: Broker) -> MakeReader:
    def make(topic: str, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **options}
        return StreamReader(parse_read_options(CaseInsensitiveDict(given), Use.STREAM_READ))

    return make


def stored(offset: Offset) -> Offset:
    """As it comes back from a checkpoint."""
    return json.loads(json.dumps(offset))


def latest(reader: StreamReader, start: Offset) -> Offset:
    return stored(reader.latestOffset(start, reader.getDefaultReadLimit()))


def rows(reader: StreamReader, start: Offset, end: Offset) -> list[int]:
    """The values of a batch, as numbers."""
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += [int(value) for value in batch.column("value").to_pylist()]
    return found


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_a_crash_in_the_first_batch_loses_nothing_although_latest_has_moved(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 7))
    first = reader(topic)
    start = stored(first.initialOffset())
    produce(topic, numbers(7, 20))
    end = latest(first, start)
    produce(topic, numbers(20, 30))
    second = reader(topic)
    wrong_start = stored(second.initialOffset())
    assert wrong_start != start
    assert rows(second, wrong_start, end) == list(range(7, 20))
    assert rows(second, end, latest(second, end)) == list(range(20, 30))


def test_an_empty_first_batch_stays_empty_after_a_crash_and_nothing_is_skipped(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 50))
    start = stored(reader(topic).initialOffset())
    # Spark passes the initial offset as the end of an empty batch.
    produce(topic, numbers(50, 60))
    second = reader(topic)
    assert rows(second, stored(second.initialOffset()), start) == []
    assert rows(second, start, latest(second, start)) == list(range(50, 60))


def test_without_news_the_start_comes_back_as_it_was(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 5))
    stream = reader(topic, startingOffsets="earliest")
    end = latest(stream, stored(stream.initialOffset()))
    assert latest(stream, end) == end
    assert rows(stream, {}, end) == list(range(5))


def test_batches_are_limited_and_cover_everything_once(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    produce(topic, numbers(0, 90), partition=0)
    produce(topic, numbers(90, 100), partition=1)
    stream = reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert isinstance(stream.getDefaultReadLimit(), ReadMaxRows)
    offset = stored(stream.initialOffset())
    seen: list[int] = []
    sizes = []
    while (end := latest(stream, offset)) != offset:
        batch = rows(stream, offset, end)
        sizes.append(len(batch))
        seen += batch
        offset = end
    assert sorted(seen) == list(range(100))
    assert sizes == [40, 40, 20]
    assert stream.latestOffset(stored(stream.initialOffset()), ReadAllAvailable()) != offset


def test_bytes_are_limited_too(reader: MakeReader, make_topic: MakeTopic, produce: Produce) -> None:
    topic = make_topic()
    for first in range(0, 100, 10):
        produce(topic, [b"%0500d" % number for number in range(first, first + 10)])
    stream = reader(topic, startingOffsets="earliest", maxBytesPerTrigger="10000")
    start = stored(stream.initialOffset())
    taken = len(rows(stream, start, latest(stream, start)))
    assert 10 <= taken <= 30


def test_few_offsets_wait_for_more_but_not_for_ever(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 5))
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    stream = reader(topic, **options)
    end = latest(stream, stored(stream.initialOffset()))
    produce(topic, numbers(5, 9))
    assert latest(stream, end) == end
    produce(topic, numbers(9, 15))
    assert rows(stream, end, latest(stream, end)) == list(range(5, 15))
    hasty = reader(topic, **options, maxTriggerDelay="0ms")
    assert latest(hasty, end) != end


def test_available_now_ends_where_it_was_prepared(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 10))
    stream = reader(topic, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    produce(topic, numbers(10, 20))
    start = stored(stream.initialOffset())
    end = latest(stream, start)
    assert rows(stream, start, end) == list(range(10))
    assert latest(stream, end) == end


def test_available_now_does_not_go_back_behind_a_batch_that_is_repeated(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 10))
    slow = reader(topic, startingOffsets="earliest")
    slow.prepareForTriggerAvailableNow()
    produce(topic, numbers(10, 20))
    fast = reader(topic, startingOffsets="earliest")
    end = latest(fast, stored(fast.initialOffset()))
    assert latest(slow, end) == end


def test_a_new_partition_is_read_from_its_beginning(
    kafka: Broker, reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    stream = reader(topic)
    start = stored(stream.initialOffset())
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(10)
    produce(topic, numbers(0, 3), partition=1)
    assert rows(stream, start, latest(stream, start)) == [0, 1, 2]


def delete_records(kafka: Broker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    done.result(10)


def test_retention_that_passes_the_reader_fails_or_is_skipped_as_asked(
    kafka: Broker, reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 10))
    strict = reader(topic, startingOffsets="earliest")
    lenient = reader(topic, startingOffsets="earliest", failOnDataLoss="false")
    start = stored(strict.initialOffset())
    planned = latest(lenient, start)
    delete_records(kafka, topic, 4)
    with pytest.raises(SourceError, match="failOnDataLoss"):
        latest(strict, start)
    assert rows(lenient, start, latest(lenient, start)) == list(range(4, 10))
    # The batch was planned before: the task itself finds out.
    assert rows(lenient, start, planned) == list(range(4, 10))
    with pytest.raises(SourceError, match="failOnDataLoss"):
        rows(strict, start, planned)


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(
    kafka: Broker, reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 10))
    strict = reader(topic, startingOffsets="earliest")
    end = latest(strict, stored(strict.initialOffset()))
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    produce(topic, numbers(100, 120))
    with pytest.raises(SourceError, match="created again"):
        latest(reader(topic), end)
    lenient = reader(topic, failOnDataLoss="false")
    assert rows(lenient, end, latest(lenient, end)) == list(range(100, 120))
    # A batch of the old topic that is repeated must not return rows of the new one.
    assert rows(lenient, {}, end) == []


def test_a_partition_that_is_gone_is_named_in_the_warning(
    kafka: Broker, reader: MakeReader, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    kept, gone = make_topic(), make_topic()
    start = stored(reader(f"{kept},{gone}").initialOffset())
    latest(reader(kept, failOnDataLoss="false"), start)
    assert f"{gone}-0 is gone; continuing, because failOnDataLoss is false" in caplog.messages
    with pytest.raises(SourceError, match=f"{gone}-0 is gone"):
        latest(reader(kept), start)


def test_a_checkpoint_of_another_topic_is_refused(
    reader: MakeReader, make_topic: MakeTopic
) -> None:
    one, other = make_topic(), make_topic()
    start = stored(reader(one).initialOffset())
    with pytest.raises(SourceError, match="checkpoint is of"):
        latest(reader(other, failOnDataLoss="false"), start)


def test_a_start_behind_the_end_is_refused_with_its_option(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 3))
    at_the_end, behind = (json.dumps({topic: {"0": offset}}) for offset in (3, 4))
    with pytest.raises(SourceError, match=r"'startingOffsets'.*ends at offset 3, before 4"):
        reader(topic, startingOffsets=behind).initialOffset()
    lenient = reader(topic, startingOffsets=behind, failOnDataLoss="false")
    assert lenient.initialOffset()[topic] == {"0": 4}
    assert reader(topic, startingOffsets=at_the_end).initialOffset()[topic] == {"0": 3}


def test_a_topic_that_does_not_exist_is_refused_at_the_start(reader: MakeReader) -> None:
    with pytest.raises(SourceError, match="no-such-topic"):
        reader("no-such-topic").initialOffset()


def test_the_end_of_the_last_finished_batch_is_committed_for_lag_tools(
    kafka: Broker, reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, numbers(0, 10))
    stream = reader(topic, startingOffsets="earliest", commitGroup=f"group-of-{topic}")
    start = stored(stream.initialOffset())
    end = latest(stream, start)
    latest(stream, end)
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": f"group-of-{topic}"}
    consumer = Consumer(settings)
    [committed] = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    assert committed.offset == 10
    assert stream.reportLatestOffset() == {topic: {"0": 10}}


def test_time_decides_where_to_begin(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    for number in range(5):
        produce(topic, [b"%d" % number], timestamp=1_000 * (number + 1))
    stream = reader(topic, startingTimestamp="2500")
    start = stored(stream.initialOffset())
    assert rows(stream, start, latest(stream, start)) == [2, 3, 4]
    with pytest.raises(SourceError, match="startingOffsetsByTimestampStrategy"):
        reader(topic, startingTimestamp="9999999").initialOffset()
    late = reader(topic, startingTimestamp="9999999", startingOffsetsByTimestampStrategy="latest")
    assert late.initialOffset()[topic] == {"0": 5}


def test_a_pattern_finds_topics_that_come_later(
    kafka: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    first = make_topic()
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribePattern": f"{first}(-more)?"}
    stream = StreamReader(parse_read_options(CaseInsensitiveDict(given), Use.STREAM_READ))
    start = stored(stream.initialOffset())
    kafka.create_topic(f"{first}-more")
    produce(f"{first}-more", numbers(0, 3))
    assert rows(stream, start, latest(stream, start)) == [0, 1, 2]


def test_a_batch_that_sparks_own_source_planned_is_read_whole(
    kafka: Broker, reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    produce(topic, numbers(0, 10), partition=0)
    produce(topic, numbers(10, 15), partition=1)
    stream = reader(topic)
    # Its offsets are ends alone, and a new partition is not in the start.
    start, end = {topic: {"0": 4}}, {topic: {"0": 9, "1": 5}}
    assert rows(stream, start, end) == [4, 5, 6, 7, 8, 10, 11, 12, 13, 14]
    assert rows(stream, end, latest(stream, end)) == [9]
    # Of the first batch it keeps the start where we cannot read it.
    with pytest.raises(SourceError, match="first batch"):
        stream.partitions(stored(stream.initialOffset()), end)
