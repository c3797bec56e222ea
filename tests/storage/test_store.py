"""All logs of a data directory: starting, stopping, creating, deleting."""

import errno
import uuid
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

import pytest

from millstream.errors import KafkaError, NoSpace, StartError
from millstream.model import TopicPartition
from millstream.storage.checkpoints import parse_offsets, parse_properties
from millstream.storage.files import FileInfo, OsFileSystem
from millstream.storage.log import Log, LogConfig
from millstream.storage.meta import stored_node_id
from millstream.storage.store import DESCRIPTOR_LIMIT, LogStore
from millstream.storage.syncing import sync
from tests.storage.logs import NOW_MS, append, batch, make_log_config
from tests.storage.memory_files import MemoryFileSystem

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)
TOPIC_ID = uuid.UUID(int=77)
MARKER = "/data/.kafka_cleanshutdown"


def open_store(
    disk: MemoryFileSystem,
    *,
    cluster_id: str | None = "cluster",
    broker_id: int = 1,
    config: LogConfig | None = None,
    reports: list[str] | None = None,
    descriptor_limit: int = DESCRIPTOR_LIMIT,
) -> LogStore:
    return LogStore.open(
        Path("/data"),
        file_system=disk,
        cluster_id=cluster_id,
        broker_id=broker_id,
        clock_now_ms=lambda: NOW_MS,
        configs=lambda topic: config or make_log_config(),
        report=([] if reports is None else reports).append,
        descriptor_limit=descriptor_limit,
    )


def claim_store(disk: MemoryFileSystem) -> LogStore:
    return LogStore.claim(
        Path("/data"),
        file_system=disk,
        cluster_id=None,
        broker_id=1,
        clock_now_ms=lambda: NOW_MS,
        report=lambda text: None,
    )


def sync_log(log: Log) -> None:
    ticket = log.begin_sync()
    assert ticket is not None
    sync([ticket])
    log.unsynced.end_sync(ticket)


def contents(disk: MemoryFileSystem) -> dict[str, bytes]:
    return {path: bytes(disk.data(path)) for path in disk.paths()}


def test_a_new_directory_gets_its_name_and_a_created_log_comes_back() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk, cluster_id=None)
    meta = parse_properties(bytes(disk.data("/data/meta.properties")))
    assert (meta["version"], meta["node.id"]) == ("1", "1")
    assert meta["cluster.id"] == store.owner.cluster_id
    assert len(meta["directory.id"]) == 22
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    append(log, batch(3))
    store.close(clean=True)
    assert MARKER in disk.paths()
    again = open_store(disk, cluster_id=None)
    assert MARKER not in disk.paths()
    assert again.last_shutdown.was_clean
    assert again.logs[FIRST].next_offset == 3
    assert again.logs[FIRST].topic_id == TOPIC_ID
    assert again.owner.cluster_id == store.owner.cluster_id


def test_a_foreign_directory_is_refused_and_left_alone() -> None:
    disk = MemoryFileSystem()
    open_store(disk).close(clean=True)
    before = contents(disk)
    with pytest.raises(StartError, match="belongs to cluster cluster"):
        open_store(disk, cluster_id="other")
    with pytest.raises(StartError, match="belongs to node 1"):
        open_store(disk, broker_id=2)
    assert contents(disk) == before
    disk.data("/data/meta.properties")[:] = b"version=9\n"
    with pytest.raises(StartError, match="version '9'"):
        open_store(disk)


def open_on_disk(path: Path, file_system: OsFileSystem | None = None) -> LogStore:
    return LogStore.open(
        path,
        file_system=file_system or OsFileSystem(),
        cluster_id=None,
        broker_id=1,
        clock_now_ms=lambda: NOW_MS,
        configs=lambda topic: make_log_config(),
        report=print,
    )


def test_a_directory_in_use_is_refused_with_one_line(tmp_path: Path) -> None:
    class Occupied(OsFileSystem):
        lock = staticmethod(lambda path: None)  # type: ignore[assignment]  # a fake

    with pytest.raises(StartError) as refused:
        open_on_disk(tmp_path, Occupied())
    assert "in use by another node" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_what_lies_beside_the_directory_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    store = open_on_disk(tmp_path / "new" / "data")
    store.close(clean=True)
    assert (tmp_path / "new" / "data" / "meta.properties").exists()


def test_a_path_that_is_no_directory_is_refused_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    with pytest.raises(StartError) as refused:
        open_on_disk(path)
    assert "\n" not in str(refused.value)
    assert path.read_text() == "not a directory"


def test_after_a_kill_in_the_same_boot_damage_takes_one_partition_offline() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    for where in (FIRST, SECOND):
        log = store.create(where, TOPIC_ID, make_log_config())
        for _ in range(3):
            append(log, batch(1))
    disk.kill()
    disk.data("/data/orders-0/00000000000000000000.log")[70] ^= 1
    reports: list[str] = []
    again = open_store(disk, reports=reports)
    assert not again.last_shutdown.was_clean
    assert not again.last_shutdown.power_was_cut
    assert list(again.logs) == [SECOND]
    assert "intact batches follow" in again.offline[FIRST]
    assert len(reports) == 1
    assert again.logs[SECOND].synced_offset == 3


def test_a_clean_stop_does_not_bring_a_damaged_partition_back() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    for where in (FIRST, SECOND):
        log = store.create(where, TOPIC_ID, make_log_config())
        for _ in range(3):
            append(log, batch(1))
    disk.kill()
    records = disk.data("/data/orders-0/00000000000000000000.log")
    records[70] ^= 1
    damage = open_store(disk).offline[FIRST]
    for _ in range(2):
        store = open_store(disk)
        assert store.offline == {FIRST: damage}
        store.close(clean=True)
        assert MARKER in disk.paths()
    # The machine starts again, which cuts nothing: the stop was clean.
    disk.boot = "another"
    store = open_store(disk)
    assert store.offline == {FIRST: damage}
    store.close(clean=True)
    records[70] ^= 1
    store = open_store(disk)
    assert (store.offline, store.logs[FIRST].next_offset) == ({}, 3)
    store.close(clean=True)
    # From here on it is trusted like the others.
    records[70] ^= 1
    assert open_store(disk).offline == {}


class FileThatCannotBeOpened(MemoryFileSystem):
    bad_path: str | None = None

    def open(self, path: str, *, create: bool) -> int:
        if path == self.bad_path:
            raise OSError(errno.EMFILE, "too many open files")
        return super().open(path, create=create)


def test_what_a_power_cut_has_torn_is_cut_when_it_can_be_opened_again() -> None:
    disk = FileThatCannotBeOpened()
    store = open_store(disk)
    for where in (FIRST, SECOND):
        log = store.create(where, TOPIC_ID, make_log_config())
        for _ in range(3):
            append(log, batch(1))
    disk.cut_power(keep=True)
    path = "/data/orders-0/00000000000000000000.log"
    size_bytes = len(disk.data(path)) // 3
    disk.data(path)[size_bytes + 70] ^= 1
    disk.bad_path = path
    for _ in range(2):
        store = open_store(disk)
        assert list(store.offline) == [FIRST]
        store.close(clean=True)
    disk.bad_path = None
    store = open_store(disk)
    assert store.offline == {}
    assert (store.logs[FIRST].next_offset, store.logs[SECOND].next_offset) == (1, 3)
    assert f"{path}.torn" in disk.paths()


def test_after_a_power_cut_the_same_damage_is_cut() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    for _ in range(3):
        append(log, batch(1))
    disk.cut_power(keep=True)
    disk.data("/data/orders-0/00000000000000000000.log")[70] ^= 1
    again = open_store(disk)
    assert again.last_shutdown.power_was_cut
    assert again.logs[FIRST].next_offset == 0
    assert "/data/orders-0/00000000000000000000.log.torn" in disk.paths()


@pytest.mark.parametrize("ending", ["kill", "power cut", "torn ends"])
def test_after_a_crash_more_partitions_open_than_files_may_be_open(ending: str) -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    places = [TopicPartition("orders", index) for index in range(60)]
    for log in store.create_many(places, TOPIC_ID, make_log_config()):
        append(log, batch(2))
        sync_log(log)
    store.checkpoints.write()
    if ending == "kill":
        disk.kill()
    else:
        disk.cut_power()
    if ending == "torn ends":
        for index in range(60):
            disk.data(f"/data/orders-{index}/00000000000000000000.log").extend(b"torn")
    disk.descriptors_max = 0
    again = open_store(disk, descriptor_limit=20)
    assert again.offline == {}
    assert disk.descriptors_max <= 22
    assert all(log.synced_offset == log.next_offset == 2 for log in again.logs.values())
    disk.cut_power()
    assert len(open_store(disk, descriptor_limit=20).logs) == 60


def test_synced_records_survive_and_everything_recovered_is_durable() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    append(log, batch(2))
    ticket = log.begin_sync()
    assert ticket is not None
    sync([ticket])
    log.unsynced.end_sync(ticket)
    append(log, batch(5))
    disk.cut_power()
    again = open_store(disk)
    assert again.last_shutdown.power_was_cut
    assert again.logs[FIRST].next_offset == 2
    disk.cut_power()
    third = open_store(disk)
    assert third.logs[FIRST].next_offset == 2
    assert third.logs[FIRST].topic_id == TOPIC_ID


def test_a_crash_during_recovery_still_knows_of_the_power_cut() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    append(log, batch(1))
    disk.cut_power(keep=True)
    disk.sync_error = errno.EIO
    with pytest.raises(StartError):
        open_store(disk)
    disk.sync_error = None
    disk.kill()
    assert open_store(disk).last_shutdown.power_was_cut


def test_the_clean_marker_is_gone_for_good_before_anything_is_loaded() -> None:
    disk = MemoryFileSystem()
    open_store(disk).close(clean=True)
    open_store(disk)
    disk.cut_power()
    again = open_store(disk)
    assert not again.last_shutdown.was_clean
    assert again.last_shutdown.power_was_cut


def test_checkpoints_hold_synced_offsets_high_watermarks_and_moved_log_starts() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    store.create(SECOND, TOPIC_ID, make_log_config())
    append(log, batch(4))
    log.delete_records_before(3)
    store.checkpoints.write()
    data = {path: bytes(disk.data(path)) for path in disk.paths() if "checkpoint" in path}
    points = parse_offsets(data["/data/recovery-point-offset-checkpoint"])
    assert points == {FIRST: 0, SECOND: 0}
    marks = parse_offsets(data["/data/replication-offset-checkpoint"])
    assert marks == {FIRST: 4, SECOND: 0}
    assert parse_offsets(data["/data/log-start-offset-checkpoint"]) == {FIRST: 3}
    store.close(clean=True)
    assert open_store(disk).logs[FIRST].log_start_offset == 3


def test_a_log_may_be_cut_once_no_file_says_that_it_goes_further() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    where = FIRST
    log = store.create(where, TOPIC_ID, make_log_config())
    for _ in range(5):
        append(log, batch(2))
    ticket = log.begin_sync()
    assert ticket is not None
    sync([ticket])
    log.unsynced.end_sync(ticket)
    assert store.checkpoints.may_cut(where, 4)
    store.checkpoints.write()
    assert not store.checkpoints.may_cut(where, 4)
    store.checkpoints.write()
    assert store.checkpoints.may_cut(where, 4)
    store.checkpoints.was_cut(where)
    log.truncate_to(4)
    disk.kill()
    again = open_store(disk)
    assert again.offline == {}
    assert again.logs[where].next_offset == 4


def test_a_log_may_not_be_cut_below_a_recovery_point_that_is_being_written() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    for _ in range(3):
        append(log, batch(1))
    sync_log(log)
    write = store.checkpoints.take()
    assert not store.checkpoints.may_cut(FIRST, 1)
    write()
    # It was captured before the limit was known.
    assert not store.checkpoints.may_cut(FIRST, 1)
    store.checkpoints.write()
    assert store.checkpoints.may_cut(FIRST, 1)
    store.checkpoints.was_cut(FIRST)
    log.truncate_to(1)
    disk.kill()
    assert open_store(disk).offline == {}


def test_a_checkpoint_that_failed_may_still_be_on_the_disk() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    append(log, batch(3))
    sync_log(log)
    disk.sync_error = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(NoSpace):
            store.checkpoints.write()
        assert not store.checkpoints.may_cut(FIRST, 1)
    disk.sync_error = None
    store.checkpoints.write()
    assert store.checkpoints.may_cut(FIRST, 1)


class SlowRenames(MemoryFileSystem):
    """Something else happens before the first rename."""

    meanwhile: Callable[[], None] | None = None

    def rename(self, old: str, new: str) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().rename(old, new)


def test_an_older_checkpoint_that_is_slow_in_its_thread_does_not_replace_a_newer_one() -> None:
    disk = SlowRenames()
    store = open_store(disk)
    store.checkpoints.turns = Lock()
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    append(log, batch(3))
    sync_log(log)
    older = store.checkpoints.take()
    assert not store.checkpoints.may_cut(FIRST, 1)
    threads: list[Thread] = []

    def write_newer() -> None:
        threads.append(Thread(target=store.checkpoints.take()))
        threads[0].start()
        threads[0].join(0.2)

    disk.meanwhile = write_newer
    older()
    threads[0].join()
    points = parse_offsets(bytes(disk.data("/data/recovery-point-offset-checkpoint")))
    assert points == {FIRST: 1}


def test_a_directory_is_of_the_cluster_that_it_first_joins() -> None:
    disk = MemoryFileSystem()
    store = claim_store(disk)
    assert store.owner.is_new
    store.owner.keep("theirs")
    store.close(clean=False)
    again = claim_store(disk)
    assert not again.owner.is_new
    assert again.owner.cluster_id == "theirs"


def test_whether_data_may_be_lost_is_known_before_logs_are_loaded() -> None:
    disk = MemoryFileSystem()
    # Nothing is there: a node that had something before has lost it.
    store = claim_store(disk)
    assert store.last_shutdown.may_have_lost_data()
    store.owner.keep()
    store.load(lambda topic: make_log_config())
    store.last_shutdown.name_boot()
    store.close(clean=False)
    killed = claim_store(disk)
    assert not killed.last_shutdown.may_have_lost_data()
    killed.close(clean=False)
    disk.boot = "another"
    cut = claim_store(disk)
    assert cut.last_shutdown.may_have_lost_data()


def test_an_older_checkpoint_never_replaces_a_newer_one() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    older = store.checkpoints.take()
    append(log, batch(4))
    store.checkpoints.write()
    older()
    marks = parse_offsets(bytes(disk.data("/data/replication-offset-checkpoint")))
    assert marks == {FIRST: 4}


def test_a_deleted_partition_is_gone_at_once_and_its_files_later() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    append(log, batch(1))
    store.delete(FIRST)
    assert FIRST not in store.logs
    assert not [path for path in disk.paths() if path.startswith("/data/orders-0/")]
    store.sweep(NOW_MS)
    assert [path for path in disk.paths() if path.endswith(".log")]
    store.sweep(NOW_MS + 60_000)
    assert not [path for path in disk.paths() if path.endswith(".log")]


def test_thousands_of_partitions_are_deleted_in_parts() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    before = disk.open_count
    places = [TopicPartition("orders", index) for index in range(5)]
    store.create_many(places, TOPIC_ID, make_log_config())
    for place in places:
        store.delete_later(place)
    assert store.logs == {}
    assert not store.finish_deletions(3)
    assert sum("-delete/" in path and path.endswith(".log") for path in disk.paths()) == 3
    assert store.finish_deletions(3)
    assert disk.open_count == before
    store.sweep(NOW_MS + 60_000)
    assert not [path for path in disk.paths() if path.endswith(".log")]


def test_a_partition_can_be_created_again_before_its_deletion_is_finished() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    append(store.create(FIRST, TOPIC_ID, make_log_config()), batch(1))
    store.delete_later(FIRST)
    again = store.create(FIRST, TOPIC_ID, make_log_config())
    assert again.next_offset == 0
    assert store.finish_deletions(3)
    assert store.logs == {FIRST: again}
    assert "/data/orders-0/00000000000000000000.log" in disk.paths()


def test_a_clean_stop_finishes_deletions() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    store.create(FIRST, TOPIC_ID, make_log_config())
    store.delete_later(FIRST)
    store.close(clean=True)
    assert open_store(disk).logs == {}


def test_a_directory_that_cannot_be_removed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    store.create(FIRST, TOPIC_ID, make_log_config())
    store.delete(FIRST)

    def fail(path: str) -> None:
        raise OSError(errno.EIO, "failed", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove", fail)
        with pytest.raises(OSError, match="failed"):
            store.sweep(NOW_MS + 60_000)
    store.sweep(NOW_MS + 60_000)
    assert not [path for path in disk.paths() if "-delete" in path]


def test_deleting_a_partition_while_it_is_synced_is_no_disk_failure() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    ticket = log.begin_sync()
    assert ticket is not None
    store.delete(FIRST)
    sync([ticket])
    log.unsynced.end_sync(ticket)


def test_a_partition_that_somebody_else_takes_away_is_not_called_synced() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    ticket = store.create(FIRST, TOPIC_ID, make_log_config()).begin_sync()
    assert ticket is not None
    disk.rename("/data/orders-0", "/data/elsewhere")
    with pytest.raises(FileNotFoundError):
        sync([ticket])


def test_a_deleted_partition_keeps_no_descriptor_of_its_expired_segments() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    before = disk.open_count
    log = store.create(FIRST, TOPIC_ID, make_log_config(retention_ms=1))
    append(log, batch(1))
    assert log.apply_retention(NOW_MS + 10)
    store.delete(FIRST)
    assert disk.open_count == before


def test_deletion_goes_on_after_a_restart() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    store.create(FIRST, TOPIC_ID, make_log_config())
    store.delete(FIRST)
    store.close(clean=True)
    again = open_store(disk)
    assert again.logs == {}
    again.sweep(NOW_MS)
    assert not [path for path in disk.paths() if "-delete" in path]


def test_a_partition_created_again_does_not_inherit_offsets() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    append(log, batch(50))
    log.delete_records_before(40)
    ticket = log.begin_sync()
    assert ticket is not None
    sync([ticket])
    log.unsynced.end_sync(ticket)
    store.checkpoints.write()
    store.delete(FIRST)
    log = store.create(FIRST, uuid.UUID(int=78), make_log_config())
    append(log, batch(2))
    disk.kill()
    again = open_store(disk)
    assert again.offline == {}
    assert (again.logs[FIRST].log_start_offset, again.logs[FIRST].next_offset) == (0, 2)


def test_a_partition_without_a_topic_keeps_its_files_aside() -> None:
    disk = MemoryFileSystem()
    reports: list[str] = []
    store = open_store(disk, reports=reports)
    append(store.create(FIRST, TOPIC_ID, make_log_config()), batch(1))
    store.put_aside(FIRST)
    assert store.logs == {}
    assert len(reports) == 1
    store.close(clean=True)
    assert open_store(disk).logs == {}
    assert [path for path in disk.paths() if "-stray/" in path and path.endswith(".log")]


def test_offline_partitions_keep_their_recovery_point() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(FIRST, TOPIC_ID, make_log_config())
    for _ in range(3):
        append(log, batch(1))
    store.close(clean=True)
    open_store(disk)
    disk.kill()
    disk.data("/data/orders-0/00000000000000000000.log")[70] ^= 1
    for _ in range(2):
        again = open_store(disk)
        assert "was on the disk" in again.offline[FIRST]
        disk.kill()
    marks = parse_offsets(bytes(disk.data("/data/recovery-point-offset-checkpoint")))
    assert marks == {FIRST: 3}


def test_many_partitions_stay_within_their_descriptors() -> None:
    disk = MemoryFileSystem()
    store = LogStore.open(
        Path("/data"),
        file_system=disk,
        cluster_id=None,
        broker_id=1,
        clock_now_ms=lambda: NOW_MS,
        configs=lambda topic: make_log_config(),
        report=print,
        descriptor_limit=20,
    )
    where = [TopicPartition("many", number) for number in range(300)]
    logs = store.create_many(where, TOPIC_ID, make_log_config())
    assert len(logs) == 300
    assert disk.open_count <= 22


def test_a_full_disk_at_creation_leaves_nothing_behind() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    disk.free_bytes = 0
    with pytest.raises(NoSpace):
        store.create(FIRST, TOPIC_ID, make_log_config())
    assert FIRST not in store.logs
    assert not [path for path in disk.paths() if "orders" in path]
    disk.free_bytes = None
    assert append(store.create(FIRST, TOPIC_ID, make_log_config()), batch(1)) == 0


def test_checkpoints_that_find_no_room_are_no_disk_failure() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    append(store.create(FIRST, TOPIC_ID, make_log_config()), batch(1))
    disk.free_bytes = 0
    with pytest.raises(NoSpace):
        store.checkpoints.write()
    disk.free_bytes = None
    store.checkpoints.write()


def test_a_start_that_finds_no_room_is_refused_with_one_line() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    append(store.create(FIRST, TOPIC_ID, make_log_config()), batch(1))
    store.close(clean=False)
    disk.free_bytes = 0
    with pytest.raises(StartError, match=r"cannot load data directory /data: .*No space left"):
        open_store(disk)
    disk.free_bytes = None
    assert open_store(disk).logs[FIRST].next_offset == 1


def test_a_damaged_meta_properties_is_refused_with_one_line() -> None:
    disk = MemoryFileSystem()
    open_store(disk).close(clean=True)
    disk.data("/data/meta.properties")[:] = b"\xff\xfe"
    with pytest.raises(StartError, match=r"/data/meta.properties is damaged"):
        open_store(disk)
    with pytest.raises(StartError, match=r"/data/meta.properties is damaged"):
        stored_node_id(disk, "/data")


class DescriptorlessFileSystem(MemoryFileSystem):
    """Nothing can be opened or listed, as when connections took all descriptors."""

    is_short = False

    def open(self, path: str, *, create: bool) -> int:
        if self.is_short:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create)

    def list(self, path: str) -> list[FileInfo]:
        if self.is_short:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().list(path)


def test_a_partition_that_could_not_be_made_is_made_at_the_next_attempt() -> None:
    disk = DescriptorlessFileSystem()
    store = open_store(disk)
    disk.is_short = True
    for _ in range(2):
        with pytest.raises(NoSpace):
            store.create(FIRST, TOPIC_ID, make_log_config())
    disk.is_short = False
    assert append(store.create(FIRST, TOPIC_ID, make_log_config()), batch(1)) == 0


def test_a_directory_that_belongs_to_nobody_is_neither_used_nor_removed() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    disk.make_directory("/data/orders-0")
    disk.close(disk.open("/data/orders-0/precious", create=True))
    with pytest.raises(KafkaError, match="move it away"):
        store.create(FIRST, TOPIC_ID, make_log_config())
    assert "/data/orders-0/precious" in disk.paths()


@pytest.mark.parametrize("link_error", [None, errno.EMLINK, errno.EPERM])
def test_partitions_of_a_topic_are_created_together_with_links_or_without(
    link_error: int | None,
) -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    disk.link_error = link_error
    store.create_many([FIRST, SECOND], TOPIC_ID, make_log_config())
    # One of them gets an id of its own: the other must not be touched by it.
    other = uuid.UUID(int=78)
    store.logs[SECOND].give_topic_id(other)
    disk.kill()
    again = open_store(disk)
    assert again.logs[FIRST].topic_id == TOPIC_ID
    assert again.logs[SECOND].topic_id == other
