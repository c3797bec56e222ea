"""Segments read in place give the same rows as the broker, and the broker fills the gaps."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import CaseInsensitiveDict

from millstream.spark import scanning
from millstream.spark.failure import SourceError
from millstream.spark.option_table import Use
from millstream.spark.options import parse_read_options
from millstream.spark.reader import BatchReader
from millstream.testing import Broker

SMALL_SEGMENTS = {"log.segment.bytes": "20000", "log.index.interval.bytes": "1000"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", settings=SMALL_SEGMENTS) as running:
        yield running


def reader(broker: Broker, topic: str, **options: str) -> BatchReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return BatchReader(parse_read_options(CaseInsensitiveDict(given), Use.BATCH_READ))


def rows(source: BatchReader) -> list[dict[str, object]]:
    return [
        row
        for partition in source.partitions()
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


def fill(broker: Broker, topic: str, count: int, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **settings})
    for number in range(count):
        producer.produce(topic, key=b"%d" % (number % 7), value=b"%0100d" % number)
        if number % 10 == 9:
            assert producer.flush(20) == 0
    assert producer.flush(20) == 0


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which anything was fetched after all."""
    from millstream.spark import reader as module

    seen: list[int] = []
    fetch = module.read_range

    def remember(cluster, wanted, settings):
        seen.append(wanted.from_offset)
        return fetch(cluster, wanted, settings)

    monkeypatch.setattr(module, "read_range", remember)
    return seen


def test_files_and_broker_give_the_same_rows(
    broker: Broker, tmp_path: Path, fetches: list[int]
) -> None:
    broker.create_topic("t", partitions=2)
    fill(broker, "t", 1000)
    path = str(tmp_path / "data")
    for bounds in (
        {},
        {"startingOffsets": '{"t":{"0":101,"1":77}}', "endingOffsets": '{"t":{"0":333,"1":80}}'},
        {"minPartitions": "7"},
    ):
        scanned = rows(reader(broker, "t", path=path, **bounds))
        assert fetches == []
        assert scanned == rows(reader(broker, "t", **bounds))
        fetches.clear()
        assert scanned


def test_a_batch_larger_than_the_buffer_is_read(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetches: list[int]
) -> None:
    monkeypatch.setattr(scanning, "CHUNK_BYTES", 100)
    broker.create_topic("t")
    fill(broker, "t", 50)
    assert len(rows(reader(broker, "t", path=str(tmp_path / "data")))) == 50
    assert fetches == []


def test_what_the_files_lack_is_fetched(broker: Broker, tmp_path: Path, fetches: list[int]) -> None:
    broker.create_topic("t")
    fill(broker, "t", 500)
    expected = rows(reader(broker, "t"))
    fetches.clear()
    assert rows(reader(broker, "t", path=str(tmp_path / "elsewhere"))) == expected
    assert fetches == [0]
    # A mount that shows the newest segment late.
    mirror = tmp_path / "mirror" / "t-0"
    mirror.mkdir(parents=True)
    folder = tmp_path / "data" / "t-0"
    (mirror / "partition.metadata").write_bytes((folder / "partition.metadata").read_bytes())
    first, second = scanning.list_segments(folder)[:2]
    name = f"{first:020d}.log"
    (mirror / name).write_bytes((folder / name).read_bytes())
    assert rows(reader(broker, "t", path=str(tmp_path / "mirror"))) == expected
    assert fetches == [0, second]


def test_files_of_another_topic_with_the_same_name_are_not_read(
    broker: Broker, tmp_path: Path, fetches: list[int]
) -> None:
    broker.create_topic("t")
    fill(broker, "t", 20)
    metadata = tmp_path / "data" / "t-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert len(rows(reader(broker, "t", path=str(tmp_path / "data")))) == 20
    assert fetches == [0]


def test_transactions_are_left_to_the_broker(
    broker: Broker, tmp_path: Path, fetches: list[int]
) -> None:
    broker.create_topic("t")
    fill(broker, "t", 30)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(20)
    for value, is_committed in ((b"seen", True), (b"not seen", False)):
        producer.begin_transaction()
        producer.produce("t", value=value)
        producer.flush(20)
        producer.commit_transaction(20) if is_committed else producer.abort_transaction(20)
    committed = {"path": str(tmp_path / "data"), "kafka.isolation.level": "read_committed"}
    found = [row["value"] for row in rows(reader(broker, "t", **committed))]
    assert found[30:] == [b"seen"]
    assert fetches == [30]
    every = rows(reader(broker, "t", path=str(tmp_path / "data")))
    assert [row["value"] for row in every][30:] == [b"seen", b"not seen"]


def test_deleted_records_are_not_shown_from_files(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("t")
    fill(broker, "t", 500)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [done] = admin.delete_records([TopicPartition("t", 0, 321)]).values()
    done.result(10)
    found = rows(reader(broker, "t", path=str(tmp_path / "data")))
    assert [row["offset"] for row in found] == list(range(321, 500))


def test_a_stopped_node_is_read_offline(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with Broker(data_dir=tmp_path / "data", settings=SMALL_SEGMENTS) as broker:
        broker.create_topic("t", partitions=2)
        fill(broker, "t", 300)
        expected = rows(reader(broker, "t"))
    given = CaseInsensitiveDict({"path": path, "offline": "true", "subscribe": "t"})
    source = BatchReader(parse_read_options(given, Use.BATCH_READ))
    assert rows(source) == expected
    missing = CaseInsensitiveDict({"path": path, "offline": "true", "subscribe": "absent"})
    with pytest.raises(SourceError, match="absent"):
        BatchReader(parse_read_options(missing, Use.BATCH_READ)).partitions()
    by_time = CaseInsensitiveDict({**given, "startingTimestamp": "1"})
    with pytest.raises(SourceError, match="need a broker"):
        BatchReader(parse_read_options(by_time, Use.BATCH_READ)).partitions()
