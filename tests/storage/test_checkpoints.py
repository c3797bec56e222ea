"""The small text files, byte for byte."""

import uuid

import pytest

from millstream.model import TopicPartition
from millstream.storage.checkpoints import (
    format_epochs,
    format_offsets,
    format_partition_metadata,
    format_properties,
    format_uuid,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
    parse_uuid,
    read_offsets,
    write_offsets,
)
from tests.storage.memory_files import MemoryFileSystem

OFFSETS = {TopicPartition("a.b_c-d", 3): 17, TopicPartition("t", 0): 0}


def test_offsets_have_kafkas_format() -> None:
    assert format_offsets(OFFSETS) == b"0\n2\na.b_c-d 3 17\nt 0 0\n"
    assert parse_offsets(format_offsets(OFFSETS)) == OFFSETS
    assert format_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\nt 0 0\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 1",
        b"0\n1\nt x 0\n",
        b"0\n1\n../t 0 0\n",
        b"\xff\xfe",
        b"\0" * 20,
    ],
)
def test_a_damaged_checkpoint_is_as_good_as_none(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_offsets(data)
    disk = MemoryFileSystem()
    descriptor = disk.open("/file", create=True)
    if data:
        disk.write_at(descriptor, data, 0)
    assert read_offsets(disk, "/file") is None
    assert read_offsets(disk, "/missing") is None


def test_a_checkpoint_survives_a_power_cut_once_written() -> None:
    disk = MemoryFileSystem()
    write_offsets(disk, "/file", {})
    write_offsets(disk, "/file", OFFSETS)
    disk.cut_power()
    assert read_offsets(disk, "/file") == OFFSETS
    assert disk.paths() == ["/file"]


def test_epochs_have_kafkas_format_and_must_grow() -> None:
    assert format_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert parse_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]
    for broken in (b"0\n2\n3 0\n3 17\n", b"0\n2\n3 10\n4 9\n", b"0\n1\n3\n"):
        with pytest.raises(ValueError):
            parse_epochs(broken)


def test_ids_have_kafkas_text_form() -> None:
    value = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert format_uuid(value) == "ASNFZ4mrze8BI0VniavN7w"
    assert parse_uuid("ASNFZ4mrze8BI0VniavN7w") == value
    with pytest.raises(ValueError):
        parse_uuid("short")


def test_partition_metadata_has_kafkas_format() -> None:
    value = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    data = format_partition_metadata(value)
    assert data == b"version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w"
    assert parse_partition_metadata(data + b"\n") == value
    for broken in (b"", b"version: 1\ntopic_id: ASNFZ4mrze8BI0VniavN7w", b"version: 0\n"):
        with pytest.raises(ValueError):
            parse_partition_metadata(broken)


def test_properties_are_read_as_java_writes_them() -> None:
    data = b"#\n#Thu Jan 01 00:00:00 UTC 1970\nversion=1\ncluster.id=a\\=b\n\nnode.id = 4\n"
    assert parse_properties(data) == {"version": "1", "cluster.id": "a=b", "node.id": "4"}
    assert format_properties({"version": "1", "node.id": "4"}) == b"version=1\nnode.id=4\n"
