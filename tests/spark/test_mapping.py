"""Functions that run where records are read, in a real Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from millstream.spark import map_record_stream, map_records
from millstream.testing.plugin import MakeTopic
from tests.spark.conftest import Produce
from tests.support.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

_SCHEMA = "partition int, rows long, size_bytes long"


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for a task; types and order are not those of the schema."""
    rows = size_bytes = 0
    partition = -1
    for batch in batches:
        rows += len(batch)
        size_bytes += pc.sum(pc.binary_length(batch["value"])).as_py()
        partition = batch["partition"][0].as_py()
    if rows:
        columns = {"size_bytes": [size_bytes], "rows": [rows], "partition": [partition]}
        yield pa.RecordBatch.from_pydict(columns)


def test_a_function_gets_the_records_of_a_task_and_spark_what_it_returns(
    spark: SparkSession, kafka: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    produce(topic, [b"%03d" % number for number in range(500)], partition=0)
    produce(topic, [b"%d" % number for number in range(7)], partition=1)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
    found = map_records(spark, {**options, "columns": "partition,value"}, count, _SCHEMA)
    assert sorted(map(tuple, found.collect())) == [(0, 500, 1500), (1, 7, 7)]

    stream = map_record_stream(spark, {**options, "startingOffsets": "earliest"}, count, _SCHEMA)
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(map(tuple, rows)) == [(0, 500, 1500), (1, 7, 7)]
