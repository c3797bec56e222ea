"""The data source in a real Spark: what only Spark can show, in as few jobs as possible.

Covers spark.
"""

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.spark import lag, upserts
from millstream.testing.plugin import MakeTopic
from tests.spark.conftest import Produce, consume
from tests.support.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def read(spark: SparkSession, kafka: Broker, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **options}
    return spark.read.format("millstream").options(**given).load()


def copy_stream(
    spark: SparkSession, kafka: Broker, source: str, sink: str, checkpoint: Path, **options: str
) -> StreamingQuery:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source}
    stream = spark.readStream.format("millstream").options(**given, **options).load()
    query = (
        stream.select("key", "value")
        .writeStream.format("millstream")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": sink})
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query


def test_a_topic_is_a_table_with_the_columns_of_sparks_own_source(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    produce(topic, [b"a", b"b"], partition=0, key="k", timestamp=1_700_000_000_123)
    produce(topic, [b"c"], partition=1, headers=[("h", b"1"), ("h", None)])
    rows = read(spark, kafka, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(r.key, r.value, r.topic, r.partition, r.offset, r.timestampType) for r in rows] == [
        (b"k", b"a", topic, 0, 0, 0),
        (b"k", b"b", topic, 0, 1, 0),
        (None, b"c", topic, 1, 0, 0),
    ]
    assert rows[0].timestamp.isoformat() == "2023-11-14T22:13:20.123000"
    assert [r.headers for r in rows] == [None, None, [("h", b"1"), ("h", None)]]


def test_another_python_source_on_the_path_works_beside_ours(spark: SparkSession) -> None:
    assert spark.read.format("neighbour").load().first().number == 7


def test_sql_reads_by_a_view_and_says_so_where_it_cannot(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [b"a", b"b"])
    options = f"'kafka.bootstrap.servers' '{kafka.bootstrap}', subscribe '{topic}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING millstream OPTIONS ({options})")
    assert spark.sql("SELECT count(*) AS n FROM v WHERE offset > 0").first().n == 1
    # In a table Spark keeps the options to itself; WITH hands them over.
    spark.sql(f"CREATE TABLE kept USING millstream OPTIONS ({options})")
    try:
        with pytest.raises(AnalysisException) as refused:
            spark.sql("SELECT * FROM kept").collect()
        assert "CREATE TEMPORARY VIEW" in str(refused.value)
        assert "WITH (...)" in str(refused.value)
        given = f"'kafka.bootstrap.servers' = '{kafka.bootstrap}', subscribe = '{topic}'"
        assert spark.sql(f"SELECT * FROM kept WITH ({given})").count() == 2
    finally:
        spark.sql("DROP TABLE kept")


def test_rows_are_written_and_a_plain_save_is_refused(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    with pytest.raises(Exception, match=r"(?i)append"):
        rows.write.format("millstream").options(**options).save()
    rows.write.format("millstream").options(**options).mode("append").save()
    values = consume(kafka.bootstrap, topic, partitions=3, isolation="read_committed")
    assert sorted(map(int, values)) == list(range(1000))


def test_a_stream_copies_each_record_once_over_restarts(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    source, sink = make_topic(partitions=2), make_topic(partitions=2)
    options = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "60",
        "commitGroup": f"of-{sink}",
    }
    produce(source, [b"%d" % n for n in range(100)], partition=0)
    first = copy_stream(spark, kafka, source, sink, tmp_path / "checkpoint", **options)
    assert len(first.recentProgress) >= 2, "maxOffsetsPerTrigger was not kept"
    behind = lag(first)
    assert behind is not None
    assert behind.total == 0
    produce(source, [b"%d" % n for n in range(100, 150)], partition=1)
    last = copy_stream(spark, kafka, source, sink, tmp_path / "checkpoint", **options)
    assert last.exception() is None
    values = consume(kafka.bootstrap, sink, partitions=2, isolation="read_committed")
    assert sorted(map(int, values)) == list(range(150))


def test_a_batch_that_was_committed_is_not_written_again_after_a_crash(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    source, sink = make_topic(), make_topic()
    produce(source, [b"%d" % n for n in range(10)])
    checkpoint = tmp_path / "checkpoint"
    copy_stream(spark, kafka, source, sink, checkpoint, startingOffsets="earliest")
    # As a crash after the sink's commit and before Spark's own leaves it.
    for path in (checkpoint / "commits").iterdir():
        path.unlink()
    produce(source, [b"%d" % n for n in range(10, 20)])
    copy_stream(spark, kafka, source, sink, checkpoint, startingOffsets="earliest")
    values = consume(kafka.bootstrap, sink, partitions=1, isolation="read_committed")
    assert [int(value) for value in values] == list(range(20))


def test_update_mode_goes_through_foreach_batch_and_two_writes_need_two_names(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    source, sink = make_topic(), make_topic()
    produce(source, [b"a", b"b", b"a"])
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source}
    stream = spark.readStream.format("millstream").options(**given, startingOffsets="earliest")
    counts = stream.load().selectExpr("CAST(value AS STRING) AS word").groupBy("word").count()
    write = upserts({"kafka.bootstrap.servers": kafka.bootstrap, "topic": sink}, key=["word"])

    def write_twice(rows: DataFrame, batch_id: int) -> None:
        write(rows, batch_id)
        with pytest.raises(Exception, match="sinkName"):
            write(rows, batch_id)

    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(write_twice)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    values = consume(kafka.bootstrap, sink, partitions=1, isolation="read_committed")
    found = {row["word"]: row["count"] for row in map(json.loads, values)}
    assert found == {"a": 2, "b": 1}


def test_sparks_own_connector_reads_streams_and_writes_our_topics(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    source, sink, ours_sink = make_topic(partitions=2), make_topic(), make_topic()
    produce(source, [b"%d" % n for n in range(100)], partition=0)
    produce(source, [b"%d" % n for n in range(100, 150)], partition=1)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    theirs = spark.read.format("kafka").options(**servers, subscribe=source).load()
    ours = read(spark, kafka, source)
    assert theirs.schema == ours.schema
    assert sorted(theirs.collect()) == sorted(ours.collect())
    stream = spark.readStream.format("kafka").options(
        **servers, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="60"
    )
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("kafka")
        .options(**servers, topic=sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    values = consume(kafka.bootstrap, sink, partitions=1, isolation="read_committed")
    assert sorted(map(int, values)) == list(range(150))
    # Its checkpoint, as a crash in the third batch leaves it, goes on with our source.
    for path in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    produce(source, [b"%d" % n for n in range(150, 160)])
    copy_stream(spark, kafka, source, ours_sink, tmp_path / "checkpoint")
    rest = consume(kafka.bootstrap, ours_sink, partitions=1, isolation="read_committed")
    assert len(rest) == 30 + 10
    assert {int(value) for value in rest} >= set(range(150, 160))
