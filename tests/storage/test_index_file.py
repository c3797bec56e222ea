"""Fixed-size entries, waiting in memory and read by the page."""

from millstream.storage.files import DescriptorCache, LogFile
from millstream.storage.index_file import EntryFile
from tests.storage.memory_files import MemoryFileSystem

PATH = "/entries"


def entry_file(disk: MemoryFileSystem) -> EntryFile:
    exists = PATH in disk.paths()
    size_bytes = len(disk.data(PATH)) if exists else 0
    file = LogFile(DescriptorCache(disk, 10), PATH, size_bytes=size_bytes, needs_sync=False)
    return EntryFile(file, entry_bytes=8, exists=exists)


def entry(number: int) -> bytes:
    return (number + 1).to_bytes(8, "big")


def test_entries_are_there_before_and_after_they_are_written() -> None:
    disk = MemoryFileSystem()
    entries = entry_file(disk)
    for number in range(2000):
        entries.append(entry(number))
    assert entries.count == 2000
    assert PATH in disk.paths()
    assert all(entries.entry(number) == entry(number) for number in range(2000))
    entries.flush()
    again = entry_file(disk)
    assert again.count == 2000
    assert all(again.entry(number) == entry(number) for number in (0, 511, 512, 1999))


def test_a_full_disk_keeps_entries_in_memory() -> None:
    disk = MemoryFileSystem()
    entries = entry_file(disk)
    disk.free_bytes = 0
    for number in range(2000):
        entries.append(entry(number))
    assert entries.entry(1999) == entry(1999)
    disk.free_bytes = None
    entries.flush()
    assert len(disk.data(PATH)) == 16_000


def test_truncation_reaches_into_memory_and_into_the_file() -> None:
    disk = MemoryFileSystem()
    entries = entry_file(disk)
    for number in range(10):
        entries.append(entry(number))
    entries.flush()
    for number in range(10, 20):
        entries.append(entry(number))
    entries.truncate(15)
    assert entries.count == 15
    entries.truncate(5)
    assert entries.count == 5
    entries.append(entry(99))
    entries.flush()
    assert bytes(disk.data(PATH)) == b"".join(map(entry, [0, 1, 2, 3, 4, 99]))


def test_zero_padding_and_a_broken_last_entry_do_not_count() -> None:
    disk = MemoryFileSystem()
    entries = entry_file(disk)
    for number in range(10):
        entries.append(entry(number))
    entries.flush()
    disk.data(PATH).extend(bytes(8 * 1000 + 3))
    again = entry_file(disk)
    assert again.count == 10
    again.append(entry(10))
    again.flush()
    assert len(disk.data(PATH)) == 88


def test_replacing_leaves_alone_what_the_file_has_already() -> None:
    disk = MemoryFileSystem()
    entries = entry_file(disk)
    entries.replace(entry(1) + entry(2))
    entries.flush()
    changes = entries.file.changes
    entries.replace(entry(1) + entry(2))
    entries.flush()
    assert entries.file.changes == changes
    entries.replace(entry(1) + entry(2) + entry(3))
    entries.flush()
    assert entries.file.changes == changes + 1
    entries.replace(entry(4))
    entries.flush()
    assert bytes(disk.data(PATH)) == entry(4)
    assert entries.count == 1
    disk.data(PATH).extend(b"odd")
    again = entry_file(disk)
    again.replace(entry(4))
    again.flush()
    assert bytes(disk.data(PATH)) == entry(4)
