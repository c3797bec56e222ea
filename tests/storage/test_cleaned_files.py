"""What a round of compaction writes goes to the disk in pieces."""

import struct

import pytest

from millstream.storage import cleaned_files, offset_index, time_index
from millstream.storage.cleaned_files import CleanedIndexes, NewFile
from tests.storage.memory_files import MemoryFileSystem


def marks(*numbers: tuple[int, int, int, int]) -> bytes:
    """Position, last offset, largest timestamp so far, and the offset that has it."""
    return b"".join(struct.pack("=qqqq", *each) for each in numbers)


def test_a_new_file_goes_to_the_disk_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_files, "_PIECE_BYTES", 10)
    disk = MemoryFileSystem()
    disk.make_directory("/d")
    with NewFile(disk, "/d/file") as file:
        for size_bytes in (4, 4, 4, 9, 1, 3):
            file.append(b"x" * size_bytes)
        assert disk.written_back == [(0, 12), (12, 10)]
        assert disk.syncs == 0
        file.sync()
    assert disk.syncs == 1


def test_entries_of_several_chunks_are_those_of_one() -> None:
    first = [(0, 109, 5000, 105), (4200, 119, 5000, 105)]
    second = [(8400, 129, 5001, 121)]
    whole, parts = CleanedIndexes(100), CleanedIndexes(100)
    whole.add(marks(*first, *second))
    for chunk in (first, [], second):
        parts.add(marks(*chunk))
    assert (whole.offsets, whole.times) == (parts.offsets, parts.times)
    assert list(offset_index.ENTRY.iter_unpack(whole.offsets)) == [(9, 0), (19, 4200), (29, 8400)]
    assert list(time_index.ENTRY.iter_unpack(whole.times)) == [(5000, 5), (5001, 21)]


def test_the_last_time_is_that_of_the_newest_record() -> None:
    indexes = CleanedIndexes(100)
    indexes.add(marks((0, 109, 5000, 105)))
    indexes.end(5000, 105)
    assert list(time_index.ENTRY.iter_unpack(indexes.times)) == [(5000, 5)]
    indexes.end(6000, 130)
    assert list(time_index.ENTRY.iter_unpack(indexes.times)) == [(5000, 5), (6000, 30)]


def test_an_empty_segment_has_no_entries() -> None:
    indexes = CleanedIndexes(100)
    indexes.end(-1, -1)
    assert (indexes.offsets, indexes.times) == (b"", b"")
