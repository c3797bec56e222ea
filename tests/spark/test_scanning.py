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
from millstream.spark.partition_files import PartitionFiles
from millstream.spark.reader import BatchReader
from tests.support.broker import Broker

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
    from millstream.spark import tasks as module

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
    first, second = PartitionFiles(folder).segments()[:2]
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


COMMITTED = {"kafka.isolation.level": "read_committed"}


def in_transactions(broker: Broker, topic: str, *, count: int) -> list[Producer]:
    """Transactions of three producers that overlap; every third is aborted."""
    producers = []
    for name in "abc":
        given = {"bootstrap.servers": broker.bootstrap, "transactional.id": name}
        producers.append(Producer(given))
        producers[-1].init_transactions(20)
    for number in range(count):
        for index, producer in enumerate(producers):
            if number % (index + 2) == 0:
                producer.begin_transaction()
            is_seen = number // (index + 2) % 3
            value = b"%s %d %0200d" % (b"seen" if is_seen else b"aborted", index, number)
            producer.produce(topic, value=value)
            assert producer.flush(20) == 0
            if number % (index + 2) == index + 1:
                producer.commit_transaction(20) if is_seen else producer.abort_transaction(20)
    return producers


def test_aborted_rows_are_left_out_by_the_files_alone(
    broker: Broker, tmp_path: Path, fetches: list[int]
) -> None:
    broker.create_topic("t")
    # Some stay open, so that the last stable offset is below the end; and a dozen segments.
    producers = in_transactions(broker, "t", count=241)
    assert len(PartitionFiles(tmp_path / "data" / "t-0").segments()) > 5
    path = str(tmp_path / "data")
    for bounds in ({}, {"minPartitions": "9"}, {"startingOffsets": '{"t":{"0":401}}'}):
        expected = rows(reader(broker, "t", **COMMITTED, **bounds))
        fetches.clear()
        assert rows(reader(broker, "t", path=path, **COMMITTED, **bounds)) == expected
        assert fetches == []
        assert all(row["value"].startswith(b"seen") for row in expected)  # type: ignore[attr-defined]  # bytes
        assert len(expected) > 100
    every = rows(reader(broker, "t", path=path))
    assert any(row["value"].startswith(b"aborted") for row in every)  # type: ignore[attr-defined]  # bytes
    del producers


def test_transactions_that_the_files_do_not_explain_are_left_to_the_broker(
    broker: Broker, tmp_path: Path, fetches: list[int]
) -> None:
    broker.create_topic("t")
    fill(broker, "t", 30)
    in_transactions(broker, "t", count=120)
    expected = rows(reader(broker, "t", **COMMITTED))
    fetches.clear()
    folder = tmp_path / "data" / "t-0"
    last = PartitionFiles(folder).segments()[-1]
    (folder / f"{last:020d}.snapshot").unlink()
    assert rows(reader(broker, "t", path=str(tmp_path / "data"), **COMMITTED)) == expected
    assert fetches == [30]


def test_an_index_that_lacks_an_aborted_transaction_is_noticed(
    broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("t")
    in_transactions(broker, "t", count=120)
    folder = tmp_path / "data" / "t-0"
    for base in PartitionFiles(folder).segments()[:-1]:
        (folder / f"{base:020d}.txnindex").unlink(missing_ok=True)
    with pytest.raises(SourceError, match="does not list the transaction"):
        rows(reader(broker, "t", path=str(tmp_path / "data"), **COMMITTED))


def test_a_segment_that_is_deleted_in_mid_read_is_fetched(
    broker: Broker, tmp_path: Path, fetches: list[int]
) -> None:
    broker.create_topic("t")
    fill(broker, "t", 500)
    expected = rows(reader(broker, "t"))
    fetches.clear()
    folder = tmp_path / "data" / "t-0"
    source = reader(broker, "t", path=str(tmp_path / "data"))
    [partition] = source.partitions()
    batches = source.read(partition)
    found = next(batches).to_pylist()
    for base in PartitionFiles(folder).segments()[2:4]:
        # As retention does it, only that the broker here still has the file open.
        (folder / f"{base:020d}.log").unlink()
    found += [row for batch in batches for row in batch.to_pylist()]
    assert found == expected
    assert len(fetches) == 1


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


def offline(path: Path, **options: str) -> BatchReader:
    given = {"path": str(path), "offline": "true", "subscribe": "t", **options}
    return BatchReader(parse_read_options(CaseInsensitiveDict(given), Use.BATCH_READ))


def test_offline_times_lead_to_the_offsets_that_the_broker_names(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", settings=SMALL_SEGMENTS) as broker:
        broker.create_topic("t")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for number in range(400):
            # Not in order: some records come late.
            time_ms = 1_000_000 + number * 10 - (500 if number % 7 == 0 else 0)
            producer.produce("t", value=b"%0100d" % number, timestamp=time_ms)
            if number % 10 == 9:
                assert producer.flush(20) == 0
        asked = [
            {"startingTimestamp": str(start), "endingTimestamp": str(end)}
            for start, end in ((1, 2_000_000), (1_001_234, 1_003_000), (1_003_980, 1_003_985))
        ]
        expected = [rows(reader(broker, "t", **each)) for each in asked]
    assert [rows(offline(tmp_path / "data", **each)) for each in asked] == expected
    assert len(expected[1]) > 100
    with pytest.raises(SourceError, match="as new as"):
        offline(tmp_path / "data", startingTimestamp="9999999999999").partitions()


def test_offline_reads_of_committed_data_end_before_open_transactions(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", settings=SMALL_SEGMENTS) as broker:
        broker.create_topic("t")
        producers = in_transactions(broker, "t", count=241)
        expected = rows(reader(broker, "t", **COMMITTED))
    assert rows(offline(tmp_path / "data", **COMMITTED)) == expected
    assert len(rows(offline(tmp_path / "data"))) > len(expected)
    del producers
