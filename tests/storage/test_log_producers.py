"""Producer state of one log: read when needed, written down, and dropped when the log is cut."""

from tests.storage.logs import NOW_MS, append, batch, open_log
from tests.storage.memory_files import MemoryFileSystem

DAY_MS = 86_400_000


def names(disk: MemoryFileSystem) -> set[str]:
    return {info.name for info in disk.list("/t-0") if info.name.endswith(".snapshot")}


def test_the_state_is_read_from_a_snapshot_and_the_log_behind_it() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, batch(2, producer_id=9, sequence=0))
    log.producers.snapshot()
    append(log, batch(3, producer_id=9, sequence=2))
    again = open_log(disk)
    producer = again.producers.states.get(9)
    assert producer is not None
    assert producer.last_sequence == 4


def test_a_snapshot_is_of_the_end_of_the_log() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, batch(5, producer_id=9, sequence=0))
    log.producers.snapshot()
    assert names(disk) == {"00000000000000000005.snapshot"}


def test_what_was_not_read_is_neither_expired_nor_written() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, batch(1, producer_id=9, sequence=0))
    log.finish()
    before = names(disk)
    again = open_log(disk)
    again.producers.expire(NOW_MS + 2 * DAY_MS, DAY_MS)
    again.producers.snapshot_if_read()
    assert names(disk) == before
    assert len(again.producers.states) == 1
    again.producers.expire(NOW_MS + 2 * DAY_MS, DAY_MS)
    assert len(again.producers.states) == 0


def test_a_cut_takes_back_what_producers_wrote_and_their_snapshots() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, batch(1, producer_id=9, sequence=0))
    append(log, batch(1, producer_id=9, sequence=1))
    log.producers.snapshot()
    log.truncate_to(1)
    assert names(disk) == set()
    producer = log.producers.states.get(9)
    assert producer is not None
    assert producer.last_sequence == 0
