"""After a crash: logs are usable at once, and what was recovered is synced beside that."""

import errno
import uuid
from pathlib import Path

import pytest

from millstream.model import TopicPartition
from millstream.storage import recovery_sync
from millstream.storage.store import DESCRIPTOR_LIMIT, LogStore
from millstream.storage.syncing import sync
from tests.storage.logs import NOW_MS, append, batch, make_log_config, read_all
from tests.storage.memory_files import MemoryFileSystem

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)
TOPIC_ID = uuid.UUID(int=77)


def loaded_store(disk: MemoryFileSystem, descriptor_limit: int = DESCRIPTOR_LIMIT) -> LogStore:
    """As a node opens it: nothing is synced yet."""
    store = LogStore.claim(
        Path("/data"),
        file_system=disk,
        cluster_id="cluster",
        broker_id=1,
        clock_now_ms=lambda: NOW_MS,
        report=lambda text: None,
        descriptor_limit=descriptor_limit,
    )
    store.load(lambda topic: make_log_config())
    return store


def crashed_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    store = loaded_store(disk)
    for where in (FIRST, SECOND):
        append(store.create(where, TOPIC_ID, make_log_config()), batch(3))
    disk.kill()
    return disk


def test_after_a_clean_stop_there_is_nothing_to_confirm() -> None:
    disk = MemoryFileSystem()
    loaded_store(disk).close(clean=True)
    assert loaded_store(disk).confirmation() is None


def test_recovered_records_are_readable_and_not_yet_called_synced() -> None:
    store = loaded_store(crashed_disk())
    log = store.logs[FIRST]
    assert (log.next_offset, log.high_watermark, log.synced_offset) == (3, 3, 0)
    assert log.begin_sync() is not None


def test_a_confirmation_settles_what_was_not_written_to_meanwhile() -> None:
    store = loaded_store(crashed_disk())
    confirmation = store.confirmation()
    assert confirmation is not None
    append(store.logs[FIRST], batch(2))
    is_synced = confirmation.sync()
    assert is_synced
    confirmation.end(is_synced=is_synced)
    # The sync may have begun before the append: what it carried is not known.
    assert store.logs[FIRST].synced_offset == 0
    assert store.logs[FIRST].begin_sync() is not None
    assert store.logs[SECOND].synced_offset == 3
    assert store.logs[SECOND].begin_sync() is None


def test_a_log_that_lost_its_end_meanwhile_is_not_called_synced() -> None:
    store = loaded_store(crashed_disk())
    confirmation = store.confirmation()
    assert confirmation is not None
    store.logs[FIRST].truncate_to(0)
    confirmation.end(is_synced=confirmation.sync())
    assert store.logs[FIRST].begin_sync() is not None


def test_before_the_confirmation_all_logs_can_be_read_and_synced_with_few_descriptors() -> None:
    disk = MemoryFileSystem()
    store = loaded_store(disk)
    places = [TopicPartition("orders", index) for index in range(60)]
    for log in store.create_many(places, TOPIC_ID, make_log_config()):
        append(log, batch(3))
    disk.kill()
    disk.descriptors_max = 0
    store = loaded_store(disk, descriptor_limit=20)
    for log in store.logs.values():
        read_all(log)
    tickets = {where: log.begin_sync() for where, log in store.logs.items()}
    sync([ticket for ticket in tickets.values() if ticket is not None])
    for where, log in store.logs.items():
        ticket = tickets[where]
        assert ticket is not None
        log.unsynced.end_sync(ticket)
        assert log.synced_offset == 3
        assert log.begin_sync() is None
    assert disk.descriptors_max <= 22
    disk.cut_power()
    assert {log.next_offset for log in loaded_store(disk).logs.values()} == {3}


class DiskThatReportsOnce(MemoryFileSystem):
    """An error in writing back is reported to the descriptors that are open when it happens."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[int] = set()

    def fail_to_write_back(self) -> None:
        self.failed = set(self._open)

    def sync_everything(self, descriptor: int) -> bool:
        if descriptor in self.failed:
            raise OSError(errno.EIO, "cannot write back")
        return super().sync_everything(descriptor)


def test_a_failure_to_write_back_recovered_records_is_noticed_without_their_descriptors() -> None:
    disk = DiskThatReportsOnce()
    store = loaded_store(disk)
    places = [TopicPartition("orders", index) for index in range(10)]
    for log in store.create_many(places, TOPIC_ID, make_log_config()):
        append(log, batch(3))
    disk.kill()
    store = loaded_store(disk, descriptor_limit=2)
    disk.fail_to_write_back()
    confirmation = store.confirmation()
    assert confirmation is not None
    with pytest.raises(OSError, match="cannot write back"):
        confirmation.sync()


def test_until_the_boot_is_named_a_power_cut_is_not_forgotten() -> None:
    disk = crashed_disk()
    disk.cut_power(keep=True)
    store = loaded_store(disk)
    assert store.last_shutdown.power_was_cut
    disk.kill()
    again = loaded_store(disk)
    assert again.last_shutdown.power_was_cut
    again.confirm_recovery()
    disk.kill()
    assert not loaded_store(disk).last_shutdown.power_was_cut


def test_large_files_are_written_before_the_sync_and_small_ones_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = crashed_disk()
    store = loaded_store(disk)
    append(store.logs[FIRST], batch(100))
    size_bytes = store.logs[FIRST].segments.size_bytes
    monkeypatch.setattr(recovery_sync, "_LARGE_BYTES", size_bytes)
    third = size_bytes // 3 - 1
    monkeypatch.setattr(recovery_sync, "_PIECE_BYTES", third)
    confirmation = store.confirmation()
    assert confirmation is not None
    confirmation.sync()
    # Four pieces, and not one for the smaller log.
    assert [position for position, _ in disk.written_back] == [0, third, 2 * third, 3 * third]


def test_a_large_file_that_is_gone_is_not_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = crashed_disk()
    store = loaded_store(disk)
    monkeypatch.setattr(recovery_sync, "_LARGE_BYTES", 1)
    confirmation = store.confirmation()
    assert confirmation is not None
    disk.remove(store.logs[FIRST].segments[0].file.path)
    assert confirmation.sync()
    assert len(disk.written_back) == 1
