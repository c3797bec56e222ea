"""Transactions in the log: the last stable offset, aborted ones for readers, recovery."""

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.records.builder import build_batch
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.records.records import Record
from millstream.storage.aborted import aborted_in_range
from millstream.storage.log import Log, LogConfig
from tests.storage.logs import (
    CRASHED,
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    make_log_config,
    open_log,
    read_all,
)
from tests.storage.memory_files import MemoryFileSystem
from tests.storage.test_store import FIRST, TOPIC_ID, open_store

SMALL_SEGMENTS = make_log_config(segment_bytes=600, index_interval_bytes=100)


def write(log: Log, producer_id: int, *, sequence: int = 0, epoch: int = 0, count: int = 1) -> int:
    records = [Record(i, NOW_MS, None, b"x" * 20) for i in range(count)]
    data = build_batch(
        records,
        base_offset=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    return append(log, data)


def end(
    log: Log, producer_id: int, kind: ControlType, *, epoch: int = 0, coordinator_epoch: int = 0
) -> int | None:
    appended = log.append_marker(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        leader_epoch=0,
        now_ms=NOW_MS,
    )
    return None if appended is None else appended.base_offset


def aborted(log: Log, offset: int, *, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    upto_offset = log.last_stable_offset
    found = log.read(offset, max_bytes=max_bytes, upto_offset=upto_offset, at_least_one=True)
    assert found is not None
    return [
        (one.producer_id, one.first_offset)
        for one in aborted_in_range(
            log.segments, log.segments.number_of(offset), offset, found, upto_offset=upto_offset
        )
    ]


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction() -> None:
    log = open_log(MemoryFileSystem())
    append(log, batch(3))
    write(log, 1)
    write(log, 2)
    append(log, batch())
    assert log.last_stable_offset == 3
    end(log, 2, ControlType.COMMIT)
    assert log.last_stable_offset == 3
    end(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == log.high_watermark == 8


def test_readers_learn_of_aborted_transactions_in_the_order_of_their_first_offsets() -> None:
    log = open_log(MemoryFileSystem())
    write(log, 1)
    write(log, 2)
    write(log, 3)
    end(log, 2, ControlType.ABORT)
    end(log, 3, ControlType.COMMIT)
    end(log, 1, ControlType.ABORT)
    assert aborted(log, 0) == [(1, 0), (2, 1)]
    assert aborted(log, 5) == [(1, 0)]
    append(log, batch())
    assert aborted(log, 6) == []


def test_an_abort_in_a_later_segment_is_told_to_readers_of_an_earlier_one() -> None:
    log = open_log(MemoryFileSystem(), SMALL_SEGMENTS)
    write(log, 1)
    for sequence in range(1, 12):
        write(log, 1, sequence=sequence)
        append(log, batch())
    assert len(log.segments) > 3
    end(log, 1, ControlType.ABORT)
    for segment in log.segments:
        assert aborted(log, segment.base_offset) == [(1, 0)]


def test_a_range_is_not_told_of_transactions_that_begin_behind_it() -> None:
    log = open_log(MemoryFileSystem(), make_log_config(index_interval_bytes=10))
    for producer_id in range(1, 30):
        write(log, producer_id)
        end(log, producer_id, ControlType.ABORT)
    told = aborted(log, 0, max_bytes=200)
    assert told[0] == (1, 0)
    assert len(told) < 5
    assert len(aborted(log, 0)) == 29


@pytest.mark.parametrize("config", [make_log_config(), SMALL_SEGMENTS])
def test_a_crash_loses_neither_open_nor_aborted_transactions(config: LogConfig) -> None:
    files = MemoryFileSystem()
    log = open_log(files, config)
    for producer_id in range(1, 10):
        write(log, producer_id, count=2)
        write(log, 100, sequence=producer_id - 1)
        end(log, producer_id, ControlType.ABORT if producer_id % 2 else ControlType.COMMIT)
    write(log, 50)
    end(log, 100, ControlType.ABORT)
    told = aborted(log, 0, max_bytes=1)
    stable = log.last_stable_offset
    files_of_index = [info.name for info in files.list(DIRECTORY) if "txnindex" in info.name]
    for name in files_of_index:
        files.remove(f"{DIRECTORY}/{name}")
    again = open_log(files, config, CRASHED)
    assert again.last_stable_offset == stable < again.high_watermark
    assert aborted(again, 0, max_bytes=1) == told
    assert dict(again.producers.states) == dict(log.producers.states)


@pytest.mark.parametrize("damage", ["removed", "cut", "overwritten"])
def test_an_index_that_is_lost_after_a_clean_stop_is_made_again(damage: str) -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=SMALL_SEGMENTS)
    log = store.create(FIRST, TOPIC_ID, SMALL_SEGMENTS)
    for producer_id in range(1, 10):
        write(log, producer_id, count=2)
        end(log, producer_id, ControlType.ABORT if producer_id % 2 else ControlType.COMMIT)
    told = aborted(log, 0, max_bytes=1), aborted(log, 15)
    store.close(clean=True)
    paths = [path for path in files.paths() if path.endswith(".txnindex")]
    assert len(paths) > 1
    if damage == "removed":
        files.remove(paths[1])
    elif damage == "cut":
        files.data(paths[1]).pop()
    else:
        files.data(paths[1])[:34] = b"\xee" * 34
    reports: list[str] = []
    log = open_store(files, config=SMALL_SEGMENTS, reports=reports).logs[FIRST]
    assert (aborted(log, 0, max_bytes=1), aborted(log, 15)) == told
    assert any("txnindex" in report for report in reports)
    assert log.begin_sync() is not None


def test_damage_below_the_recovery_point_is_found_after_a_crash() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=SMALL_SEGMENTS)
    log = store.create(FIRST, TOPIC_ID, SMALL_SEGMENTS)
    for producer_id in range(1, 10):
        write(log, producer_id, count=2)
        end(log, producer_id, ControlType.ABORT)
    told = aborted(log, 0, max_bytes=1)
    store.close(clean=True)
    open_store(files, config=SMALL_SEGMENTS).close(clean=False)
    first = min(path for path in files.paths() if path.endswith(".txnindex"))
    files.data(first)[:2] = b"\x11\x11"
    log = open_store(files, config=SMALL_SEGMENTS).logs[FIRST]
    assert aborted(log, 0, max_bytes=1) == told


def test_a_marker_is_written_though_no_record_would_be() -> None:
    log = open_log(MemoryFileSystem())
    write(log, 1)
    log.update_config(make_log_config(segment_bytes=14))
    with pytest.raises(KafkaError) as error:
        write(log, 2)
    assert error.value.code is KafkaCode.RECORD_LIST_TOO_LARGE
    end(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == log.next_offset == 2


def test_a_marker_that_comes_again_is_left_out() -> None:
    log = open_log(MemoryFileSystem())
    write(log, 1)
    assert end(log, 1, ControlType.COMMIT) == 1
    assert end(log, 1, ControlType.COMMIT) is None
    assert end(log, 1, ControlType.COMMIT, epoch=1) == 2


def test_markers_of_an_older_epoch_or_coordinator_are_refused() -> None:
    log = open_log(MemoryFileSystem())
    write(log, 1, epoch=4)
    with pytest.raises(KafkaError) as refused:
        end(log, 1, ControlType.COMMIT, epoch=3)
    assert refused.value.code is KafkaCode.INVALID_PRODUCER_EPOCH
    end(log, 1, ControlType.COMMIT, epoch=4, coordinator_epoch=7)
    with pytest.raises(KafkaError) as refused:
        end(log, 1, ControlType.COMMIT, epoch=4, coordinator_epoch=6)
    assert refused.value.code is KafkaCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_with_a_newer_epoch_starts_the_sequence_anew() -> None:
    log = open_log(MemoryFileSystem())
    write(log, 1, count=3)
    end(log, 1, ControlType.ABORT, epoch=1)
    with pytest.raises(KafkaError) as refused:
        write(log, 1, sequence=3)
    assert refused.value.code is KafkaCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as refused:
        write(log, 1, sequence=3, epoch=1)
    assert refused.value.code is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, 1, epoch=1)


def test_truncation_opens_a_transaction_again() -> None:
    log = open_log(MemoryFileSystem())
    write(log, 1)
    marker_offset = end(log, 1, ControlType.ABORT)
    assert marker_offset == 1
    log.truncate_to(marker_offset)
    assert log.last_stable_offset == 0
    assert list(log.segments[0].aborted) == []


@pytest.mark.parametrize("cut", [1, 2])
def test_a_follower_that_was_cut_knows_of_a_transaction_that_is_aborted_next(cut: int) -> None:
    leader, follower = open_log(MemoryFileSystem()), open_log(MemoryFileSystem())
    write(leader, 1)
    write(leader, 1, sequence=1)
    end(leader, 1, ControlType.ABORT)
    whole = memoryview(bytearray(read_all(leader)))
    follower.append_as_follower(whole)
    follower.truncate_to(cut)
    follower.append_as_follower(whole[position_of(leader, cut) :])
    follower.high_watermark = follower.next_offset
    assert follower.last_stable_offset == 3
    assert aborted(follower, 0) == aborted(leader, 0) == [(1, 0)]
    producers = [dict(log.producers.states)[1].batches for log in (leader, follower)]
    assert producers[0] == producers[1]


def position_of(log: Log, offset: int) -> int:
    found = log.segments.active.find(offset)
    assert found is not None
    return found[0]


def test_the_last_stable_offset_is_never_before_the_log_start() -> None:
    log = open_log(MemoryFileSystem())
    write(log, 1)
    append(log, batch(5))
    log.delete_records_before(4)
    assert log.last_stable_offset == 4
    end(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == log.high_watermark
