"""After a crash: logs are usable at once, and what was recovered is synced beside that."""

import uuid
from pathlib import Path

import pytest

from millstream.model import TopicPartition
from millstream.storage import recovery_sync
from millstream.storage.store import LogStore
from tests.storage.logs import NOW_MS, append, batch, make_log_config
from tests.storage.memory_files import MemoryFileSystem

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)
TOPIC_ID = uuid.UUID(int=77)


def loaded_store(disk: MemoryFileSystem) -> LogStore:
    """As a node opens it: nothing is synced yet."""
    store = LogStore.claim(
        Path("/data"),
        file_system=disk,
        cluster_id="cluster",
        broker_id=1,
        clock_now_ms=lambda: NOW_MS,
        report=lambda text: None,
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
