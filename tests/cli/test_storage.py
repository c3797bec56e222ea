"""`millstream storage` on directories made here, without a broker."""

import json
from pathlib import Path

import pytest

from millstream.model import Codec, TimestampType
from millstream.records.builder import build_batch
from millstream.records.records import Record
from tests.support.command_line import run_millstream

NOON_MS = 1_769_860_800_000


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """One partition, one segment, two batches of two records."""
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    batches = [
        build_batch(
            [Record(base + i, NOON_MS, b"k%d" % i, b"v%d" % i, [("h", None)]) for i in range(2)],
            base_offset=base,
            codec=codec,
            leader_epoch=0,
            timestamp_type=TimestampType.CREATE_TIME,
        )
        for base, codec in [(0, Codec.NONE), (2, Codec.ZSTD)]
    ]
    (partition / "00000000000000000000.log").write_bytes(b"".join(batches))
    (partition / "00000000000000000000.index").touch()
    (partition / "00000000000000000000.timeindex").touch()
    return tmp_path / "data"


def log_file(data_dir: Path) -> Path:
    return data_dir / "orders-0" / "00000000000000000000.log"


def test_segments_are_listed_for_people_and_programs(data_dir: Path) -> None:
    size = log_file(data_dir).stat().st_size
    ran = run_millstream("storage", "segments", str(data_dir))
    assert ran.exit_code == 0
    assert ran.output.splitlines()[1].split()[:3] == ["orders-0", "0", str(size)]
    [listed] = json.loads(run_millstream("storage", "segments", str(data_dir), "--json").output)
    assert (listed["partition"], listed["size_bytes"]) == ("orders-0", size)


def test_a_dump_shows_batches_with_offsets_and_codecs(data_dir: Path) -> None:
    lines = run_millstream("storage", "dump", str(data_dir)).output.splitlines()
    assert lines[0] == str(log_file(data_dir))
    assert "offsets=0..1 records=2" in lines[1]
    assert "codec=none" in lines[1]
    assert "offsets=2..3 records=2" in lines[2]
    assert "codec=zstd" in lines[2]


def test_a_dump_of_one_file_with_records_is_json_by_the_line(data_dir: Path) -> None:
    ran = run_millstream("storage", "dump", str(log_file(data_dir)), "-r", "--json")
    batches = [json.loads(line) for line in ran.output.splitlines()]
    records = [record for batch in batches for record in batch["records"]]
    assert [record["offset"] for record in records] == [0, 1, 2, 3]
    assert records[3] == {
        "topic": "orders",
        "partition": 0,
        "offset": 3,
        "timestamp": NOON_MS,
        "key": "k1",
        "value": "v1",
        "headers": [{"name": "h", "value": None}],
    }


def test_a_sound_directory_verifies(data_dir: Path) -> None:
    ran = run_millstream("storage", "verify", str(data_dir))
    assert (ran.exit_code, ran.output) == (0, "")
    assert ran.errors == "1 segment, nothing wrong\n"


def test_a_flipped_byte_is_found_and_nothing_is_changed(data_dir: Path) -> None:
    damaged = bytearray(log_file(data_dir).read_bytes())
    damaged[-1] ^= 0xFF
    log_file(data_dir).write_bytes(damaged)
    ran = run_millstream("storage", "verify", str(data_dir))
    assert ran.exit_code == 1
    assert str(log_file(data_dir)) in ran.output
    assert "Traceback" not in ran.errors
    assert run_millstream("storage", "verify", str(data_dir), "--json").exit_code == 1
    assert "BAD-CRC" in run_millstream("storage", "dump", str(data_dir)).output
    assert log_file(data_dir).read_bytes() == damaged


def test_a_directory_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    ran = run_millstream("storage", "segments", str(tmp_path / "nowhere"))
    assert ran.exit_code == 2
    assert "nowhere" in ran.errors


@pytest.mark.parametrize("command", ["segments", "dump", "verify"])
def test_a_directory_without_partitions_is_told_from_one_without_faults(
    tmp_path: Path, command: str
) -> None:
    ran = run_millstream("storage", command, str(tmp_path))
    assert (ran.exit_code, ran.output) == (1, "")
    assert ran.errors == f"millstream: {tmp_path} has no partitions and is not a data directory\n"
    (tmp_path / "meta.properties").touch()
    assert run_millstream("storage", command, str(tmp_path)).exit_code == 0


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    ran = run_millstream("storage", "dump", str(tmp_path / "notes.txt"))
    assert ran.exit_code == 2
    assert "is not a .log file" in ran.errors
