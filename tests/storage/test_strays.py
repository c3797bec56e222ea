"""Directories that were put aside, and since when."""

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.storage import layout
from millstream.storage.checkpoints import format_partition_metadata
from millstream.storage.files import write_file
from millstream.storage.strays import find_strays, note_stray
from tests.storage.memory_files import MemoryFileSystem

TOPIC_ID = UUID(int=7)
NAME = "t-0.0123456789abcdef0123456789abcdef-stray"


def disk_with(*names: str) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    for name in names:
        disk.make_directory(f"/data/{name}")
    return disk


def test_a_stray_says_whose_it_is_and_since_when() -> None:
    disk = disk_with(NAME, "t-1", "t-2.0123456789abcdef0123456789abcdef-delete", "my-stray")
    metadata = f"/data/{NAME}/{layout.PARTITION_METADATA_FILE}"
    write_file(disk, metadata, format_partition_metadata(TOPIC_ID), is_synced=False)
    note_stray(disk, f"/data/{NAME}", now_ms=5)
    [found] = find_strays(disk, "/data", now_ms=90)
    assert (found.path, found.topic_id, found.since_ms) == (f"/data/{NAME}", TOPIC_ID, 5)


def test_one_that_does_not_say_since_when_is_one_from_now_on() -> None:
    disk = disk_with(NAME)
    [first] = find_strays(disk, "/data", now_ms=90)
    [second] = find_strays(disk, "/data", now_ms=900)
    assert (first.since_ms, second.since_ms) == (90, 90)
    assert second.topic_id == NO_TOPIC_ID
