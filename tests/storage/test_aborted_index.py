"""The aborted transactions of a segment."""

import pytest

from millstream.storage.aborted_index import ENTRY_BYTES, AbortedIndex, AbortedTransaction
from millstream.storage.files import DescriptorCache, LogFile
from millstream.storage.index_file import EntryFile
from tests.storage.memory_files import MemoryFileSystem


def new_index(disk: MemoryFileSystem) -> AbortedIndex:
    file = LogFile(DescriptorCache(disk, 10), "/txnindex", size_bytes=0, needs_sync=False)
    return AbortedIndex(EntryFile(file, entry_bytes=ENTRY_BYTES, exists=False))


def test_entries_have_kafkas_bytes_and_come_back() -> None:
    disk = MemoryFileSystem()
    index = new_index(disk)
    aborted = [AbortedTransaction(1, 5, 9, 10), AbortedTransaction(2, 7, 20, 21)]
    for one in aborted:
        index.append(one)
    assert list(index) == aborted
    index.entries.flush()
    content = bytes(disk.data("/txnindex"))
    assert len(content) == 2 * 34
    assert content[:34] == b"\0\0" + b"".join(n.to_bytes(8, "big") for n in (1, 5, 9, 10))


def test_truncation_drops_what_ended_later() -> None:
    index = new_index(MemoryFileSystem())
    index.append(AbortedTransaction(1, 5, 9, 10))
    index.append(AbortedTransaction(2, 7, 20, 21))
    index.truncate_to_offset(20)
    assert [one.producer_id for one in index] == [1]


def test_an_unknown_version_is_refused() -> None:
    index = new_index(MemoryFileSystem())
    index.entries.append(b"\0\1" + bytes(31) + b"\1")
    with pytest.raises(ValueError, match="version 1"):
        list(index)
