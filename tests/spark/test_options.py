"""Every option is read as Spark's own source reads it, and what is wrong is named."""

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from millstream.model import TopicPartition
from millstream.spark.failure import SourceError
from millstream.spark.option_table import OPTIONS, Use
from millstream.spark.options import Place, layout_of, parse_read_options

SERVERS = {"kafka.bootstrap.servers": "one:9092,[::1]:9093"}


def parse(use: Use = Use.BATCH_READ, **options: str):
    given = {**SERVERS, "subscribe": "t", **options}
    return parse_read_options(CaseInsensitiveDict(given), use)


def refused(use: Use = Use.BATCH_READ, **options: str) -> str:
    with pytest.raises(SourceError) as error:
        parse(use, **options)
    return str(error.value)


def test_names_are_the_same_in_any_case() -> None:
    options = CaseInsensitiveDict({**SERVERS, "SUBSCRIBE": "a, b", "FailOnDataLoss": "FALSE"})
    read = parse_read_options(options, Use.STREAM_READ)
    assert read.selection.topics == ("a", "b")
    assert read.fetch.fails_on_data_loss is False
    assert [(a.host, a.port) for a in read.client.bootstrap] == [("one", 9092), ("::1", 9093)]


def test_defaults_are_those_of_sparks_own_source() -> None:
    stream, batch = parse(Use.STREAM_READ), parse(Use.BATCH_READ)
    assert stream.starting.place is Place.LATEST
    assert batch.starting.place is Place.EARLIEST
    assert batch.ending.place is Place.LATEST
    assert stream.fetch.fails_on_data_loss
    assert not stream.fetch.is_committed_only
    assert stream.trigger_delay_ms_max == 15 * 60_000
    assert stream.fetch.stall_seconds_max == 120
    assert stream.layout.columns == (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    )  # fmt: skip


def test_a_starting_timestamp_wins_over_timestamps_and_these_over_offsets() -> None:
    by_timestamp = '{"t":{"0":5}}'
    every = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": by_timestamp}
    assert parse(**every).starting.by_partition == {TopicPartition("t", 0): 5}
    first = parse(**every, startingTimestamp="7").starting
    assert (first.place, first.timestamp_ms) == (Place.TIMESTAMP, 7)


def test_offsets_by_partition_may_say_earliest_and_latest() -> None:
    text = '{"t":{"0":23,"1":-2,"2":-1}}'
    read = parse(Use.STREAM_READ, startingOffsets=text)
    assert read.starting.by_partition == {
        TopicPartition("t", 0): 23,
        TopicPartition("t", 1): -2,
        TopicPartition("t", 2): -1,
    }
    assert "latest" in refused(startingOffsets=text)
    assert "earliest" in refused(endingOffsets='{"t":{"0":-2}}')


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": "{"}, "startingOffsets"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"startingTimestamp": "9" * 19}, "startingTimestamp"),
        ({"startingTimestamp": "²"}, "startingTimestamp"),
        ({"startingOffsets": '{"t":{"0":9999999999999999999}}'}, "startingOffsets"),
        ({"minPartitions": "9" * 19}, "minPartitions"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "startingOffsetsByTimestampStrategy"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition"),
        ({"columns": "key,nothing"}, "columns"),
        ({"columns": "key,Key"}, "columns"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribe": "a b"}, "subscribe"),
        ({"assign": '{"t":[0]}'}, "assign"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "host"}, "kafka.bootstrap.servers"),
        ({"kafka.isolation.level": "serializable"}, "kafka.isolation.level"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "commitGroup"),
        ({"kafka.security.protocol": "TELEPATHY"}, "kafka.security.protocol"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism"),
        ({"commitGroup": "g"}, "commitGroup"),
        ({"topic": "t"}, "topic"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], named: str) -> None:
    assert named in refused(**options)


def test_a_misspelt_option_is_refused_with_the_right_one() -> None:
    assert "startingOffsets" in refused(startingOffset="earliest")
    assert "UNKNOWN_OPTION" in refused(somethingElse="1")


def test_stream_only_options_are_ignored_in_a_batch_but_not_the_other_way() -> None:
    assert parse(maxOffsetsPerTrigger="5").layout.columns
    assert "endingOffsets" in refused(Use.STREAM_READ, endingOffsets="latest")


def test_minimum_and_maximum_must_fit() -> None:
    text = refused(Use.STREAM_READ, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="5")
    assert "minOffsetsPerTrigger" in text


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("15m", 900_000), ("2 h", 7_200_000), ("30s", 30_000), ("7", 7)]
)
def test_times_are_written_as_spark_writes_them(text: str, milliseconds: int) -> None:
    assert parse(Use.STREAM_READ, maxTriggerDelay=text).trigger_delay_ms_max == milliseconds


def test_columns_are_chosen_by_hand_and_headers_by_name_too() -> None:
    assert layout_of(CaseInsensitiveDict({"columns": "Offset, value"})).columns == (
        "offset",
        "value",
    )
    assert layout_of(CaseInsensitiveDict({"includeHeaders": "true"})).columns[-1] == "headers"


def test_sasl_credentials_come_from_the_jaas_line() -> None:
    line = 'x.ScramLoginModule required username="al\\"ice" password="se cret";'
    read = parse(
        **{
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": line,
        }
    )
    found = read.client.security.credentials
    assert (found.username, found.password) == ('al"ice', "se cret")


def test_every_option_has_a_sentence() -> None:
    for option in OPTIONS:
        assert option.sentence.endswith("."), option.name
