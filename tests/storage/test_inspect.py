"""Looking at a data directory: what is there, and what is wrong with it."""

import uuid
from pathlib import Path

import pytest

from millstream.model import Codec, TopicPartition
from millstream.storage.files import OsFileSystem
from millstream.storage.inspect import dump, list_segments, verify
from millstream.storage.store import LogStore
from tests.storage.logs import NOW_MS, append, batch, make_log_config


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two partitions, the first with two segments and index entries."""
    store = LogStore.open(
        tmp_path / "data",
        file_system=OsFileSystem(),
        cluster_id=None,
        broker_id=1,
        clock_now_ms=lambda: NOW_MS,
        configs=lambda topic: make_log_config(),
        report=print,
    )
    config = make_log_config(segment_bytes=1000, index_interval_bytes=200)
    for number in range(2):
        log = store.create(TopicPartition("orders", number), uuid.UUID(int=5), config)
        for index in range(20 - 18 * number):
            codec = Codec.GZIP if index == 3 else Codec.NONE
            append(log, batch(2, timestamp_ms=NOW_MS + index, codec=codec, key=b"k"))
    store.close(clean=True)
    return tmp_path / "data"


def messages(data_dir: Path) -> list[str]:
    return [f"{finding.path.name}: {finding.message}" for finding in verify(data_dir)]


def test_segments_are_listed_for_a_data_directory_and_for_a_partition(data_dir: Path) -> None:
    everything = list_segments(data_dir)
    assert [info.partition for info in everything] == ["orders-0", "orders-0", "orders-1"]
    assert everything[0].base_offset == 0
    assert everything[0].index_bytes > 0
    assert everything[0].size_bytes == everything[0].path.stat().st_size
    assert list_segments(data_dir / "orders-1") == everything[2:]


def test_batches_are_dumped_with_and_without_their_records(data_dir: Path) -> None:
    batches = list(dump(data_dir / "orders-0", records=True))
    assert [one.base_offset for one in batches] == list(range(0, 40, 2))
    assert batches[3].codec == "gzip"
    assert all(one.is_crc_valid for one in batches)
    assert [record.key for record in batches[3].records] == [b"k", b"k"]
    assert all(not one.records for one in dump(data_dir / "orders-0", records=False))
    first_segment = list_segments(data_dir)[0].path
    assert 0 < len(list(dump(first_segment, records=False))) < 20


def test_a_directory_that_we_wrote_is_found_in_order(data_dir: Path) -> None:
    assert messages(data_dir) == []


def test_looking_changes_nothing(data_dir: Path) -> None:
    def state() -> dict[Path, tuple[bytes, int]]:
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in data_dir.rglob("*")
            if path.is_file()
        }

    before = state()
    list_segments(data_dir)
    list(dump(data_dir, records=True))
    list(verify(data_dir))
    assert state() == before


def harm(path: Path, position: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(value)] = value
    path.write_bytes(data)


def test_each_kind_of_damage_is_found(data_dir: Path) -> None:
    first = data_dir / "orders-0" / "00000000000000000000.log"
    harm(first, 70, b"\xff")
    assert messages(data_dir) == [f"{first.name}: checksum of offset 0 is wrong"]


def test_a_torn_tail_is_found(data_dir: Path) -> None:
    path = data_dir / "orders-1" / "00000000000000000000.log"
    with path.open("ab") as file:
        file.write(b"torn")
    assert messages(data_dir) == [f"{path.name}: no batch here; 4 bytes to the end of the file"]


def test_an_index_that_points_nowhere_is_found(data_dir: Path) -> None:
    path = data_dir / "orders-0" / "00000000000000000000.index"
    harm(path, 7, b"\x01")
    (message,) = messages(data_dir)
    assert "where no batch starts" in message


def test_an_index_out_of_order_is_found(data_dir: Path) -> None:
    path = data_dir / "orders-0" / "00000000000000000000.index"
    data = path.read_bytes()
    assert len(data) >= 16
    path.write_bytes(data[8:16] + data[:8] + data[16:])
    assert "00000000000000000000.index: entries are out of order" in messages(data_dir)


def test_a_time_index_that_disagrees_with_the_log_is_found(data_dir: Path) -> None:
    path = data_dir / "orders-0" / "00000000000000000000.timeindex"
    harm(path, 7, bytes([path.read_bytes()[7] ^ 1]))
    assert [message for message in messages(data_dir) if "whose batch has" in message]


def test_odd_sizes_and_broken_small_files_are_found(data_dir: Path) -> None:
    partition = data_dir / "orders-1"
    (partition / "00000000000000000000.index").write_bytes(b"123")
    (partition / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    (partition / "partition.metadata").write_bytes(b"")
    found = messages(data_dir)
    assert "00000000000000000000.index: size is not a multiple of 8" in found
    assert len(found) == 3


def test_kafkas_preallocated_indexes_are_in_order(data_dir: Path) -> None:
    for name in ("index", "timeindex"):
        path = data_dir / "orders-0" / f"00000000000000000000.{name}"
        path.write_bytes(path.read_bytes() + bytes(1200))
    assert messages(data_dir) == []
