"""Files that Apache Kafka 4.3.0 wrote, held against ours, byte for byte.

The directory has one partition with all codecs, an idempotent producer per codec, two
aborted transactions and a committed one, in two segments: the second was rolled because
its timestamps are years later. Kafka stopped cleanly.
"""

import shutil
import uuid
from pathlib import Path

import pytest

from millstream.model import TopicPartition
from millstream.records.batch import split_batches
from millstream.records.records import read_records
from millstream.storage.files import OsFileSystem
from millstream.storage.inspect import verify
from millstream.storage.log import Log
from millstream.storage.producers import ProducerStates
from millstream.storage.store import LogStore
from tests.storage.logs import make_log_config

GOLDEN = Path(__file__).parent / "kafka_4_3_0"
PARTITION = TopicPartition("mixed", 0)
CONFIG = make_log_config(segment_bytes=1 << 20, index_interval_bytes=512)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def open_store(directory: Path) -> LogStore:
    return LogStore.open(
        directory,
        file_system=OsFileSystem(),
        cluster_id=None,
        broker_id=1,
        clock_now_ms=lambda: 1_800_000_000_000,
        configs=lambda topic: CONFIG,
        report=print,
    )


@pytest.fixture
def adopted(tmp_path: Path) -> LogStore:
    shutil.copytree(GOLDEN, tmp_path / "data")
    return open_store(tmp_path / "data")


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def read_everything(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


def test_the_same_batches_make_the_same_files(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    metadata = (GOLDEN / "mixed-0" / "partition.metadata").read_text()
    from millstream.storage.checkpoints import parse_uuid

    topic_id: uuid.UUID = parse_uuid(metadata.split()[-1])
    log = store.create(PARTITION, topic_id, CONFIG)
    for path in sorted((GOLDEN / "mixed-0").glob("*.log")):
        for batch in split_batches(memoryview(path.read_bytes())):
            log.append_as_follower(batch.bytes)
    log.high_watermark = log.next_offset
    store.close(clean=True)
    assert files_of(tmp_path / "data" / "mixed-0") == files_of(GOLDEN / "mixed-0")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert "mixed 0 69" in (tmp_path / "data" / name).read_text().splitlines()


def test_a_directory_of_kafkas_opens_in_place(adopted: LogStore) -> None:
    assert adopted.last_shutdown.was_clean
    assert adopted.offline == {}
    log = adopted.logs[PARTITION]
    assert (log.log_start_offset, log.next_offset, log.synced_offset) == (0, 69, 69)
    assert log.epochs.entries == [(0, 0)]
    assert len(log.producers.states) == 6


def test_every_record_of_every_codec_is_read(adopted: LogStore) -> None:
    content = memoryview(read_everything(adopted.logs[PARTITION]))
    values = [
        (record.value or b"").decode()
        for batch in split_batches(content)
        if not batch.is_control
        for record in read_records(batch, limit_bytes=1 << 20)
    ]
    expected = [f"{codec} {number} " * 10 for codec in CODECS for number in range(12)]
    assert values[:60] == expected
    assert values[60:] == [f"transaction {number}" for number in (0, 0, 1, 1, 2, 2)]


def test_the_state_of_producers_is_the_same_from_the_log_as_from_the_snapshot(
    adopted: LogStore,
) -> None:
    log = adopted.logs[PARTITION]
    for path in Path(log.directory).glob("*.snapshot"):
        saved = ProducerStates.decode(path.read_bytes(), next_offset=0)
        assert saved.encode() == path.read_bytes()
        path.unlink()
    assert (
        log.producers.states.encode()
        == (GOLDEN / "mixed-0" / "00000000000000000069.snapshot").read_bytes()
    )


def test_aborted_transactions_are_listed(adopted: LogStore) -> None:
    segments = adopted.logs[PARTITION].segments
    aborted = [one for segment in segments for one in segment.aborted]
    assert [one.producer_id for one in aborted] == [5, 5]
    assert all(one.first_offset < one.last_offset for one in aborted)


def test_verification_finds_nothing_wrong() -> None:
    assert list(verify(GOLDEN)) == []
