"""Many logs, one sync."""

import errno

import pytest

from millstream.storage.syncing import SyncTicket, sync
from tests.storage.logs import append, batch, open_log
from tests.storage.memory_files import MemoryFileSystem


class CountingFileSystem(MemoryFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.single_syncs = 0
        self.full_syncs = 0
        self.can_sync_everything = True

    def sync(self, descriptor: int) -> None:
        self.single_syncs += 1
        super().sync(descriptor)

    def sync_everything(self, descriptor: int) -> bool:
        if not self.can_sync_everything:
            return False
        self.full_syncs += 1
        return super().sync_everything(descriptor)


def dirty_tickets(disk: MemoryFileSystem, count: int) -> list[SyncTicket]:
    """Of as many logs; nothing but records is unsynced in them."""
    tickets = []
    for number in range(count):
        log = open_log(disk, directory=f"/t-{number}")
        append(log, batch(1))
        first = log.begin_sync()
        assert first is not None
        sync([first])
        log.unsynced.end_sync(first)
        append(log, batch(1))
        ticket = log.begin_sync()
        assert ticket is not None
        tickets.append(ticket)
    return tickets


def test_a_file_in_many_tickets_is_synced_once() -> None:
    disk = CountingFileSystem()
    [first] = dirty_tickets(disk, 1)
    disk.single_syncs = disk.full_syncs = 0
    sync([first] * 9)
    assert (disk.single_syncs, disk.full_syncs) == (1, 0)


def test_a_few_files_are_synced_one_by_one() -> None:
    disk = CountingFileSystem()
    tickets = dirty_tickets(disk, 3)
    disk.single_syncs = disk.full_syncs = 0
    sync(tickets)
    assert (disk.single_syncs, disk.full_syncs) == (3, 0)


def test_many_files_are_synced_in_one_go() -> None:
    disk = CountingFileSystem()
    tickets = dirty_tickets(disk, 9)
    disk.single_syncs = disk.full_syncs = 0
    sync(tickets)
    assert (disk.single_syncs, disk.full_syncs) == (0, 1)


def test_where_that_is_not_possible_they_go_one_by_one() -> None:
    disk = CountingFileSystem()
    disk.can_sync_everything = False
    tickets = dirty_tickets(disk, 9)
    disk.single_syncs = 0
    sync(tickets)
    assert disk.single_syncs == 9


@pytest.mark.parametrize("count", [1, 9])
def test_a_failed_sync_is_an_error_and_nothing_counts_as_synced(count: int) -> None:
    disk = CountingFileSystem()
    log = open_log(disk)
    for _ in range(count):
        append(log, batch(1))
    ticket = log.begin_sync()
    assert ticket is not None
    disk.sync_error = errno.EIO
    with pytest.raises(OSError):
        sync([ticket])
    assert log.synced_offset == 0
