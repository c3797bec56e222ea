"""Producer state of one log: read when needed, written down, and dropped when the log is cut."""

import errno

import pytest

from millstream.errors import KafkaCode, KafkaError, LogDirFailed
from millstream.storage import snapshots
from millstream.storage.log_producers import LogProducers
from millstream.storage.producer_budget import ProducerBudget
from tests.storage.logs import CLEAN, CRASHED, NOW_MS, append, batch, open_log
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


def test_a_snapshot_that_cannot_be_removed_after_a_cut_is_a_failure_of_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, batch(2, producer_id=9, sequence=0))
    log.producers.snapshot()

    def fail(path: str) -> None:
        raise OSError(errno.EIO, "cannot remove")

    monkeypatch.setattr(disk, "remove", fail)
    with pytest.raises(LogDirFailed):
        log.truncate_to(0)
    assert log.next_offset == 0
    assert log.producers.states.get(9) is None


@pytest.mark.parametrize("was_killed", [True, False])
def test_a_retry_of_a_batch_that_the_snapshot_lacks_is_found_in_the_log(was_killed: bool) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for sequence in range(0, 14, 2):
        append(log, batch(2, producer_id=9, sequence=sequence))
        append(log, batch(1, producer_id=7, sequence=sequence // 2))
    log.roll(NOW_MS)
    append(log, batch(2, producer_id=9, sequence=14))
    if was_killed:
        disk.kill()
    else:
        log.finish()
    again = open_log(disk, circumstances=CRASHED if was_killed else CLEAN)
    end = again.next_offset
    # The last five of each: offsets are those of the first append.
    assert [append(again, batch(2, producer_id=9, sequence=s)) for s in (6, 8, 10, 12, 14)] == [
        *(9, 12, 15, 18, 21),
    ]
    assert append(again, batch(1, producer_id=7, sequence=2)) == 8
    for producer_id, sequence in ((9, 4), (7, 1)):
        with pytest.raises(KafkaError) as refused:
            append(again, batch(2, producer_id=producer_id, sequence=sequence))
        assert refused.value.code is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert again.next_offset == end


def test_a_batch_of_another_epoch_is_no_earlier_one() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, batch(2, producer_id=9, sequence=0))
    append(log, batch(2, producer_id=9, producer_epoch=1, sequence=0))
    log.roll(NOW_MS)
    disk.kill()
    again = open_log(disk, circumstances=CRASHED)
    with pytest.raises(KafkaError, match="sent sequence 4 after 1"):
        append(again, batch(2, producer_id=9, producer_epoch=1, sequence=4))
    producer = again.producers.states.get(9)
    assert producer is not None
    assert [known.base_offset for known in producer.batches] == [2]


def test_earlier_batches_are_looked_for_in_a_bounded_part_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "_EARLIER_BYTES", (20_000, 40_000))
    monkeypatch.setattr(snapshots, "_EARLIER_BATCHES_MIN", 3)
    disk = MemoryFileSystem()
    log = open_log(disk)
    for sequence in range(20):
        append(log, batch(1, producer_id=9, sequence=sequence, value=bytes(5_000)))
        if sequence == 16:
            log.roll(NOW_MS)
    found = snapshots.batches_before(20, log.segments.all)
    offsets = [each.base_offset for each in found]
    assert offsets == list(range(offsets[0], 20))
    assert 3 <= len(offsets) <= 4
    assert snapshots.batches_before(0, log.segments.all) == []


def test_a_new_producer_is_refused_where_there_is_no_room_and_a_known_one_goes_on() -> None:
    log = open_log(MemoryFileSystem())
    budget = ProducerBudget(2)
    log.producers = LogProducers(
        log.segments, log.producers._snapshots, lambda: log.next_offset, budget
    )
    for producer_id in (1, 2):
        append(log, batch(1, producer_id=producer_id, sequence=0))
    with pytest.raises(KafkaError) as refused:
        append(log, batch(1, producer_id=3, sequence=0))
    assert refused.value.code is KafkaCode.THROTTLING_QUOTA_EXCEEDED
    end = log.next_offset
    append(log, batch(1, producer_id=1, sequence=1))
    # A retry is still known as one.
    append(log, batch(1, producer_id=2, sequence=0))
    assert log.next_offset == end + 1
    append(log, batch(1))
    # While there is little room, an hour of silence is enough.
    log.producers.expire(NOW_MS + 2 * 3_600_000, DAY_MS)
    append(log, batch(1, producer_id=3, sequence=0))


def test_a_silent_producer_stays_for_its_day_while_there_is_room() -> None:
    log = open_log(MemoryFileSystem())
    append(log, batch(1, producer_id=1, sequence=0))
    log.producers.expire(NOW_MS + 2 * 3_600_000, DAY_MS)
    assert len(log.producers.states) == 1
