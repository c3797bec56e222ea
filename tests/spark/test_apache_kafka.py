"""The same source and sink against Apache Kafka: what is not our own extension works there.

Covers spark.
"""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from millstream.spark import exactly_once
from millstream.spark.failure import SourceError
from millstream.spark.option_table import Use
from millstream.spark.options import parse_read_options
from millstream.spark.reader import BatchReader
from millstream.spark.source import batch_writer
from millstream.spark.stream import StreamReader
from tests.spark.conftest import consume
from tests.support.apache_kafka import ApacheKafka
from tests.support.tools import skip_if_java_is_left_out

pytestmark = [pytest.mark.slow, pytest.mark.java]

VALUE = StructType([StructField("value", StringType())])


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    skip_if_java_is_left_out()
    with ApacheKafka(tmp_path_factory.mktemp("kafka") / "data") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for name in ("read", "write", "once"):
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        yield kafka.bootstrap


def options(bootstrap: str, **more: str) -> CaseInsensitiveDict:
    return CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap, **more})


def rows(*texts: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": pa.array(texts, pa.string())})])


def test_batch_and_stream_read_the_same_rows_with_transactions_in_between(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("read", value=b"%d" % number)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    given = options(bootstrap, subscribe="read", **{"kafka.isolation.level": "read_committed"})
    batch = BatchReader(parse_read_options(given, Use.BATCH_READ))
    found = [
        value
        for partition in batch.partitions()
        for each in batch.read(partition)
        for value in each.column("value").to_pylist()
    ]
    assert found == [b"0", b"2", b"4"]
    given = options(
        bootstrap,
        subscribe="read",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="5",
        commitGroup="spark",
        maxBytesPerTrigger="1000000",
    )
    stream = StreamReader(parse_read_options(given, Use.STREAM_READ))
    offset = json.loads(json.dumps(stream.initialOffset()))
    seen = []
    while (end := stream.latestOffset(offset, stream.getDefaultReadLimit())) != offset:
        offset = json.loads(json.dumps(end))
        for partition in stream.partitions({}, offset):
            for each in stream.read(partition):
                seen += each.column("value").to_pylist()
    assert seen == [b"%d" % number for number in range(6)]


def test_rows_are_written_at_least_once(bootstrap: str) -> None:
    writer = batch_writer(options(bootstrap, topic="write"), VALUE, overwrite=False)
    writer.write(rows(*(str(number) for number in range(1000))))
    values = consume(bootstrap, "write", partitions=1, isolation="read_committed")
    assert [int(value) for value in values] == list(range(1000))


def test_rows_are_written_exactly_once_by_the_driver_and_large_tasks_are_refused(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_id in (0, 1, 1, 0):
        given = options(
            bootstrap, topic="once", semantics="exactly-once", queryId="q", batchId=str(batch_id)
        )
        writer = batch_writer(given, VALUE, overwrite=False)
        writer.commit([writer.write(rows(str(batch_id)))])
    values = consume(bootstrap, "once", partitions=1, isolation="read_committed")
    assert values == [b"0", b"1"]
    monkeypatch.setattr(exactly_once, "CARRIED_BYTES_MAX", 10)
    with pytest.raises(SourceError, match="maxOffsetsPerTrigger"):
        writer.write(rows("x" * 100))
