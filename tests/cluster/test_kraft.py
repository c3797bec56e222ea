"""Kafka's metadata: a small real one, and ones built record by record."""

import contextlib
import shutil
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.kraft import (
    METADATA_DIRECTORY,
    KraftMetadata,
    _Replay,
    read_kraft_metadata,
)
from millstream.cluster.znodes import encode_uuid
from millstream.encoding import Writer
from millstream.errors import StartError
from millstream.records.builder import build_batch
from millstream.records.records import Record

# Written by Apache Kafka 4.3.0: ten topics, one deleted, some options, a few snapshots.
KAFKA_DIRECTORY = Path(__file__).parent / "kafka_directory"
TOPIC_ID = uuid.UUID("4f1e22a0-9a2b-4a86-8b5e-6c6b0d2a3c11")


def record(kind: int, version: int = 0) -> Writer:
    writer = Writer()
    for number in (1, kind, version):
        writer.unsigned_varint(number)
    return writer


def topic(name: str, topic_id: uuid.UUID = TOPIC_ID) -> bytes:
    writer = record(2)
    writer.compact_string(name)
    writer.uuid(topic_id)
    writer.tagged_fields()
    return writer.getvalue()


def integers(writer: Writer, *numbers: int) -> None:
    writer.compact_array_length(len(numbers))
    for number in numbers:
        writer.int32(number)


def partition(number: int, *, leader_epoch: int = 0, version: int = 2) -> bytes:
    writer = record(3, version)
    writer.int32(number)
    writer.uuid(TOPIC_ID)
    integers(writer, 1)
    integers(writer, 1)
    integers(writer)
    integers(writer)
    writer.int32(1)
    writer.int32(leader_epoch)
    writer.int32(0)
    if version > 0:
        writer.compact_array_length(1)
        writer.uuid(uuid.UUID(int=5))
    writer.tagged_fields({0: b"\x00"})
    return writer.getvalue()


def partition_change(number: int, **changed: bytes) -> bytes:
    writer = record(5, 2)
    writer.int32(number)
    writer.uuid(TOPIC_ID)
    tags = {"isr": 0, "leader": 1, "replicas": 2}
    writer.tagged_fields({tags[name]: data for name, data in changed.items()})
    return writer.getvalue()


def config(kind: int, resource: str, name: str, value: str | None) -> bytes:
    writer = record(4)
    writer.int8(kind)
    writer.compact_string(resource)
    writer.compact_string(name)
    writer.compact_nullable_string(value)
    writer.tagged_fields()
    return writer.getvalue()


def remove_topic(topic_id: uuid.UUID = TOPIC_ID) -> bytes:
    writer = record(9)
    writer.uuid(topic_id)
    writer.tagged_fields()
    return writer.getvalue()


def producer_ids(next_id: int) -> bytes:
    writer = record(15)
    writer.int32(1)
    writer.int64(9)
    writer.int64(next_id)
    writer.tagged_fields()
    return writer.getvalue()


def batch(values: list[bytes], base_offset: int = 0, *, is_control: bool = False) -> bytes:
    records = [Record(base_offset + number, 0, None, value) for number, value in enumerate(values)]
    return bytes(build_batch(records, base_offset=base_offset, is_control=is_control))


def write(directory: Path, name: str, *batches: bytes) -> None:
    folder = directory / METADATA_DIRECTORY
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(batches))


def read_log(directory: Path, *values: bytes):
    write(directory, f"{0:020}.log", batch(list(values)))
    return read_kraft_metadata(directory)


def test_a_real_metadata_log_is_read():
    metadata = read_kraft_metadata(KAFKA_DIRECTORY)
    by_name = {each.name: each for each in metadata.topics.values()}
    assert sorted(by_name) == ["compacted", "forever", *(f"m{number}" for number in range(8))]
    assert sorted(by_name["compacted"].partitions) == [0, 1, 2, 3]
    assert metadata.topic_configs["forever"] == {
        "retention.ms": "-1",
        "max.message.bytes": "3000000",
    }
    assert metadata.topic_configs["compacted"] == {"cleanup.policy": "compact"}
    assert metadata.broker_configs[1]["log.retention.ms"] == "99999999"
    assert metadata.next_producer_id == 1000
    for each in by_name.values():
        text = (KAFKA_DIRECTORY / f"{each.name}-0" / "partition.metadata").read_text()
        assert text.split()[-1] == encode_uuid(each.topic_id)
        assert {part.replicas for part in each.partitions.values()} == {(1,)}
    assert metadata.torn_bytes == 0


def test_every_snapshot_and_the_log_alone_lead_to_the_same_metadata(tmp_path):
    wanted = read_kraft_metadata(KAFKA_DIRECTORY)
    assert wanted is not None
    copy = tmp_path / METADATA_DIRECTORY
    shutil.copytree(KAFKA_DIRECTORY / METADATA_DIRECTORY, copy)
    snapshots = sorted(copy.glob("*.checkpoint"))
    assert len(snapshots) == 3
    for snapshot in reversed(snapshots):
        snapshot.unlink()
        assert read_kraft_metadata(tmp_path) == wanted


def test_a_directory_without_metadata_has_none(tmp_path):
    assert read_kraft_metadata(tmp_path) is None


def test_topics_partitions_and_their_changes_add_up(tmp_path):
    metadata = read_log(
        tmp_path,
        topic("orders"),
        partition(0, leader_epoch=4, version=0),
        partition(1, leader_epoch=7, version=1),
        partition(2),
        partition_change(0, leader=b"\x00\x00\x00\x01"),
        partition_change(0, isr=b"\x02\x00\x00\x00\x01"),
        partition_change(1, replicas=b"\x03\x00\x00\x00\x01\x00\x00\x00\x02"),
    )
    found = metadata.topics[TOPIC_ID]
    assert (found.name, sorted(found.partitions)) == ("orders", [0, 1, 2])
    assert [found.partitions[number].leader_epoch for number in range(3)] == [5, 7, 0]
    assert found.partitions[1].replicas == (1, 2)


def test_options_are_set_and_unset_by_topic_by_node_and_for_all(tmp_path):
    metadata = read_log(
        tmp_path,
        config(2, "orders", "retention.ms", "5"),
        config(2, "orders", "flush.ms", "5"),
        config(2, "orders", "flush.ms", None),
        config(4, "3", "log.retention.ms", "6"),
        config(4, "", "log.retention.ms", "7"),
        config(16, "a metrics subscription", "interval.ms", "8"),
    )
    assert metadata.topic_configs == {"orders": {"retention.ms": "5"}}
    assert metadata.broker_configs == {
        3: {"log.retention.ms": "6"},
        None: {"log.retention.ms": "7"},
    }


def test_a_removed_topic_takes_its_options_along(tmp_path):
    metadata = read_log(
        tmp_path,
        topic("orders"),
        partition(0),
        config(2, "orders", "retention.ms", "5"),
        remove_topic(),
        topic("orders", uuid.UUID(int=88)),
    )
    assert list(metadata.topics) == [uuid.UUID(int=88)]
    assert metadata.topic_configs == {}


def test_the_last_block_of_producer_ids_counts(tmp_path):
    assert read_log(tmp_path, producer_ids(1000), producer_ids(5000)).next_producer_id == 5000


def test_a_metadata_transaction_counts_only_once_it_has_ended(tmp_path):
    begin, end, abort = (record(kind).getvalue() + b"\x00" for kind in (23, 24, 25))
    others = [uuid.UUID(int=number) for number in range(1, 5)]
    metadata = read_log(
        tmp_path,
        begin,
        topic("ended", others[0]),
        end,
        begin,
        topic("aborted", others[1]),
        abort,
        topic("plain", others[2]),
        begin,
        topic("open", others[3]),
    )
    assert {each.name for each in metadata.topics.values()} == {"ended", "plain"}


def test_other_records_are_passed_over_and_the_ones_users_miss_are_counted(tmp_path):
    values = [record(kind, 99).getvalue() + b"whatever" for kind in (0, 12, 18, 18, 27, 250)]
    metadata = read_log(tmp_path, *values)
    assert dict(metadata.left_out) == {"access rules": 2}


def test_control_batches_are_no_records(tmp_path):
    control = batch([b"not a metadata record"], is_control=True)
    write(tmp_path, f"{0:020}.log", control, batch([topic("a")], 1))
    assert len(read_kraft_metadata(tmp_path).topics) == 1


def test_records_below_the_snapshot_are_not_replayed_again(tmp_path):
    write(tmp_path, f"{0:020}.log", batch([topic("old"), remove_topic()]), batch([topic("new")], 2))
    write(tmp_path, f"{2:020}-{1:010}.checkpoint", batch([producer_ids(3000)]))
    metadata = read_kraft_metadata(tmp_path)
    assert [each.name for each in metadata.topics.values()] == ["new"]
    assert metadata.next_producer_id == 3000


def test_a_torn_end_is_left_out_and_told(tmp_path):
    whole, last = batch([topic("a")]), batch([topic("b", uuid.UUID(int=2))], 1)
    for kept in (1, 30, 61, len(last) - 1):
        write(tmp_path, f"{0:020}.log", whole, last[:kept])
        metadata = read_kraft_metadata(tmp_path)
        assert ([each.name for each in metadata.topics.values()], metadata.torn_bytes) == (
            ["a"],
            kept,
        )


def test_damage_before_the_end_is_an_error(tmp_path):
    write(tmp_path, f"{0:020}.log", batch([topic("a")])[:-1])
    write(tmp_path, f"{1:020}.log", batch([topic("b")], 1))
    with pytest.raises(StartError, match="broken batch"):
        read_kraft_metadata(tmp_path)


def test_a_missing_beginning_is_an_error(tmp_path):
    write(tmp_path, f"{5:020}.log", batch([topic("a")], 5))
    with pytest.raises(StartError, match="offsets 0 and up"):
        read_kraft_metadata(tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        partition(0),
        partition_change(0),
        b"",
        b"\x02\x02\x00",
        record(2, 1).getvalue() + topic("a")[3:],
        topic("a")[:-3],
    ],
    ids=["no topic", "no partition", "empty", "frame version", "newer version", "cut short"],
)
def test_records_that_cannot_be_understood_are_an_error_in_one_line(tmp_path, value):
    with pytest.raises(StartError, match="cannot be read") as caught:
        read_log(tmp_path, value)
    assert "\n" not in str(caught.value)


@given(st.integers(0, 27), st.integers(0, 3), st.binary(max_size=80))
def test_no_record_whatever_raises_anything_but_value_error(kind, version, rest):
    metadata = KraftMetadata()
    replay = _Replay(metadata)
    for value in (topic("a"), partition(0)):
        replay.record(value)
    with contextlib.suppress(ValueError):
        replay.record(record(kind, version).getvalue() + rest)
    # Removing it takes its id, which is not among short random bytes.
    assert 0 in metadata.topics[TOPIC_ID].partitions
