"""A partition's log: offsets, visibility, duplicates, durability, cutting."""

import errno

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import KafkaCode, KafkaError, LogDirFailed, NoSpace
from millstream.model import Codec, TimestampType
from millstream.records.batch import BatchView, split_batches
from millstream.records.builder import build_batch
from millstream.records.records import Record, read_records
from millstream.storage.log import Log
from millstream.storage.lookup import LargeBatch, find_max_timestamp, find_timestamp
from millstream.storage.recovery import Circumstances
from millstream.storage.syncing import sync
from tests.storage.logs import (
    CRASHED,
    DIRECTORY,
    LOG_PATH,
    NOW_MS,
    append,
    append_as_leader,
    batch,
    last_offset_in,
    make_log_config,
    offset_for_timestamp,
    open_log,
    read_all,
)
from tests.storage.memory_files import MemoryFileSystem


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


def test_a_leader_gives_each_batch_the_next_offsets_and_its_epoch(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    assert append(log, batch(3), leader_epoch=4) == 0
    assert append(log, batch(2), leader_epoch=5) == 3
    batches = list(split_batches(memoryview(read_all(log))))
    assert [(b.base_offset, b.partition_leader_epoch) for b in batches] == [(0, 4), (3, 5)]
    assert all(b.crc_is_valid() for b in batches)
    assert (log.next_offset, log.high_watermark) == (5, 5)
    assert log.epochs.entries == [(4, 0), (5, 3)]


def test_several_batches_in_one_produce_are_refused(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    with pytest.raises(KafkaError) as refused:
        append_as_leader(log, memoryview(batch(2) + batch(3)), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is KafkaCode.INVALID_RECORD
    assert log.next_offset == 0


def test_log_append_time_replaces_the_producers_timestamps(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(timestamp_type=TimestampType.LOG_APPEND_TIME))
    appended = append_as_leader(
        log, memoryview(batch(2, timestamp_ms=5)), leader_epoch=0, now_ms=NOW_MS
    )
    assert appended.append_time_ms == NOW_MS
    stored = BatchView(memoryview(read_all(log)))
    assert stored.crc_is_valid()
    assert {record.timestamp_ms for record in read_records(stored, limit_bytes=9999)} == {NOW_MS}


@pytest.mark.parametrize("codec", list(Codec))
def test_a_topics_codec_replaces_the_producers(disk: MemoryFileSystem, codec: Codec) -> None:
    log = open_log(disk, make_log_config(compression_type=codec))
    append(log, batch(3, codec=Codec.GZIP, value=b"v" * 50))
    append(log, batch(2, codec=Codec.NONE, value=b"w" * 50))
    batches = list(split_batches(memoryview(read_all(log))))
    assert [b.codec for b in batches] == [codec, codec]
    assert all(b.crc_is_valid() for b in batches)
    values = [r.value for b in batches for r in read_records(b, limit_bytes=9999)]
    assert values == [b"v" * 50] * 3 + [b"w" * 50] * 2


def test_a_retry_gets_the_first_answer_and_writes_nothing(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    for number in range(6):
        append(log, batch(1, producer_id=9, sequence=number))
    size = log.segments.size_bytes
    again = append_as_leader(
        log, memoryview(batch(1, producer_id=9, sequence=1)), leader_epoch=0, now_ms=NOW_MS
    )
    assert (again.base_offset, again.next_offset, again.is_duplicate) == (1, 2, True)
    assert log.segments.size_bytes == size
    with pytest.raises(KafkaError) as refused:
        append(log, batch(1, producer_id=9, sequence=0))
    assert refused.value.code is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_restart_still_knows_the_last_batch_of_a_producer(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    for number in range(3):
        append(log, batch(1, producer_id=9, sequence=number))
    log.finish()
    log.close()
    for circumstances in (None, CRASHED):
        log = open_log(disk, circumstances=circumstances) if circumstances else open_log(disk)
        again = append_as_leader(
            log, memoryview(batch(1, producer_id=9, sequence=2)), leader_epoch=0, now_ms=NOW_MS
        )
        assert (again.base_offset, again.is_duplicate) == (2, True)


def test_lost_and_damaged_snapshots_do_not_turn_duplicates_into_accepts(
    disk: MemoryFileSystem,
) -> None:
    log = open_log(disk, make_log_config(segment_bytes=200))
    for number in range(8):
        append(log, batch(1, producer_id=9, sequence=number))
    log.finish()
    snapshots = [path for path in disk.paths() if path.endswith(".snapshot")]
    assert len(snapshots) > 2
    disk.remove(snapshots[0])
    for path in snapshots[1:]:
        disk.data(path)[7] ^= 1
    log = open_log(disk)
    again = append_as_leader(
        log, memoryview(batch(1, producer_id=9, sequence=5)), leader_epoch=0, now_ms=NOW_MS
    )
    assert (again.base_offset, again.is_duplicate) == (5, True)


@pytest.mark.parametrize("free_bytes", [0, 1, 70, 100])
def test_a_full_disk_leaves_nothing_visible_and_service_resumes(
    disk: MemoryFileSystem, free_bytes: int
) -> None:
    log = open_log(disk)
    append(log, batch(2, producer_id=9, sequence=0))
    before = (
        bytes(disk.data(LOG_PATH)),
        log.next_offset,
        log.segments.size_bytes,
        log.high_watermark,
    )
    disk.free_bytes = free_bytes
    with pytest.raises(NoSpace):
        append(log, batch(2, producer_id=9, sequence=2, value=b"v" * 200))
    assert (
        bytes(disk.data(LOG_PATH)),
        log.next_offset,
        log.segments.size_bytes,
        log.high_watermark,
    ) == (before)
    disk.free_bytes = None
    assert append(log, batch(2, producer_id=9, sequence=2, value=b"v" * 200)) == 2


@pytest.mark.parametrize("free_bytes", [0, 5, 60, 160])
def test_a_full_disk_during_a_roll_or_a_new_epoch_leaves_the_log_usable(
    disk: MemoryFileSystem, free_bytes: int
) -> None:
    log = open_log(disk, make_log_config(segment_bytes=250))
    for _ in range(3):
        append(log, batch(1))
    disk.free_bytes = free_bytes
    with pytest.raises(NoSpace):
        append(log, batch(1, value=b"v" * 100), leader_epoch=1)
    disk.free_bytes = None
    assert append(log, batch(1), leader_epoch=1) == 3
    assert last_offset_in(read_all(log)) == 3
    assert open_log(disk, circumstances=CRASHED).next_offset == 4


def test_an_input_output_error_condemns_the_directory(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(1))
    disk.write_error = errno.EIO
    with pytest.raises(LogDirFailed):
        append(log, batch(1))
    assert log.next_offset == 1


def test_reads_outside_the_log_are_refused_and_at_its_end_empty(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(3))
    assert log.read(3, max_bytes=100, upto_offset=3, at_least_one=True) is None
    for offset in (-1, 4):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, max_bytes=100, upto_offset=3, at_least_one=True)
        assert refused.value.code is KafkaCode.OFFSET_OUT_OF_RANGE


def test_a_read_inside_a_batch_returns_the_whole_batch(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(10))
    found = log.read(7, max_bytes=1, upto_offset=10, at_least_one=True)
    assert found is not None
    assert (found.position, found.length) == (0, log.segments.size_bytes)
    assert log.read(7, max_bytes=1, upto_offset=10, at_least_one=False) is None


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=30),
    st.integers(150, 600),
    st.data(),
)
def test_a_read_starts_with_its_offset_and_never_crosses_upto_offset(
    counts: list[int], segment_bytes: int, data: st.DataObject
) -> None:
    log = open_log(
        MemoryFileSystem(), make_log_config(segment_bytes=segment_bytes, index_interval_bytes=100)
    )
    for count in counts:
        append(log, batch(count, value=b""))
    boundaries = [0]
    for count in counts:
        boundaries.append(boundaries[-1] + count)
    upto = data.draw(st.sampled_from(boundaries))
    offset = data.draw(st.integers(0, log.next_offset))
    max_bytes = data.draw(st.integers(0, 700))
    found = log.read(offset, max_bytes=max_bytes, upto_offset=upto, at_least_one=True)
    if found is None:
        assert offset >= upto
        return
    content = memoryview(found.read())
    first = BatchView(content)
    assert first.base_offset <= offset <= first.last_offset
    assert len(content) <= max(max_bytes, first.size_bytes)
    position = 0
    while position + 61 <= len(content):
        one = BatchView(content[position:])
        assert one.last_offset < upto
        position += one.size_bytes


def test_records_are_found_by_time_even_when_timestamps_jump(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(index_interval_bytes=50, segment_bytes=400))
    stamps = [10, 50, 20, 20, 70, 60, 5, 80, 30, 90]
    for stamp in stamps:
        append(log, batch(1, timestamp_ms=stamp))
    for target in range(95):
        expected = next(
            ((stamp, offset) for offset, stamp in enumerate(stamps) if stamp >= target), None
        )
        found = offset_for_timestamp(log, target, upto_offset=log.next_offset)
        assert (found and (found.timestamp_ms, found.offset)) == expected
    assert offset_for_timestamp(log, 85, upto_offset=9) is None
    newest = find_max_timestamp(log.segments, from_offset=0, upto_offset=10)
    assert newest is not None
    assert (newest.timestamp_ms, newest.offset) == (90, 9)


def test_a_largest_timestamp_outside_the_bounds_is_not_an_answer(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    stamps = [10, 90, 90, 20]
    records = [Record(index, stamp, None, b"v") for index, stamp in enumerate(stamps)]
    append(log, build_batch(records, base_offset=0))
    append(log, batch(1, timestamp_ms=30))

    def ask(from_offset: int, upto_offset: int) -> int | None:
        found = find_max_timestamp(log.segments, from_offset=from_offset, upto_offset=upto_offset)
        return found and found.offset

    assert ask(0, 5) == 1
    assert ask(2, 5) == 2
    assert ask(3, 5) is None
    assert ask(4, 5) is None
    assert ask(0, 2) == 1
    assert ask(0, 1) is None
    assert ask(0, 0) is None


def test_the_first_record_inside_a_compressed_batch_is_found_by_time(
    disk: MemoryFileSystem,
) -> None:
    log = open_log(disk)
    records = [Record(index, 100 + 10 * index, None, b"v") for index in range(5)]
    append(log, build_batch(records, base_offset=0, codec=Codec.ZSTD))
    found = offset_for_timestamp(log, 115, upto_offset=5)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (120, 2)
    log.delete_records_before(4)
    found = offset_for_timestamp(log, 115, upto_offset=5)
    assert found is not None
    assert found.offset == 4


def test_segments_roll_by_size_by_time_and_when_the_index_is_full(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(segment_bytes=300))
    for _ in range(10):
        append(log, batch(1))
    assert all(segment.size_bytes <= 300 for segment in log.segments)
    assert len(log.segments) > 2
    log.update_config(make_log_config(segment_ms=1000))
    append(log, batch(1, value=bytes(10_000)))
    count = len(log.segments)
    append(log, batch(1, timestamp_ms=NOW_MS + 1001))
    assert len(log.segments) == count + 1
    log.update_config(make_log_config(segment_index_bytes=36, index_interval_bytes=1))
    for _ in range(20):
        append(log, batch(1, value=bytes(5_000), timestamp_ms=NOW_MS + 1001))
    assert len(log.segments) > count + 3
    assert last_offset_in(read_all(log)) == log.next_offset - 1


def test_a_follower_rolls_before_a_relative_offset_would_overflow(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    for base_offset in (5, 2**31 + 4, 2**31 + 5, 2**33):
        data = memoryview(batch(1))
        BatchView(data).stamped(base_offset, 1)
        log.append_as_follower(data)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 4, 2**33]
    assert log.next_offset == 2**33 + 1
    found = log.read(2**31 + 5, max_bytes=1, upto_offset=2**34, at_least_one=True)
    assert found is not None
    assert BatchView(memoryview(found.read())).base_offset == 2**31 + 5


def test_a_follower_refuses_offsets_that_go_back(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    data = batch(2)
    log.append_as_follower(memoryview(data))
    with pytest.raises(KafkaError):
        log.append_as_follower(memoryview(data))
    assert log.next_offset == 2


def test_a_sync_covers_what_was_written_before_it_began(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(2))
    ticket = log.begin_sync()
    assert ticket is not None
    append(log, batch(3))
    sync([ticket])
    log.unsynced.end_sync(ticket)
    assert log.synced_offset == 2
    ticket = log.begin_sync()
    assert ticket is not None
    sync([ticket])
    log.unsynced.end_sync(ticket)
    assert log.synced_offset == 5
    assert log.begin_sync() is None


def test_a_sync_that_overlaps_a_truncation_proves_nothing(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(5))
    ticket = log.begin_sync()
    assert ticket is not None
    log.truncate_to(0)
    append(log, batch(2))
    sync([ticket])
    log.unsynced.end_sync(ticket)
    assert log.synced_offset == 0
    assert log.begin_sync() is not None


def test_what_was_synced_survives_a_power_cut(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(segment_bytes=300))
    for _ in range(7):
        append(log, batch(1), leader_epoch=2)
    ticket = log.begin_sync()
    assert ticket is not None
    sync([ticket])
    log.unsynced.end_sync(ticket)
    append(log, batch(1), leader_epoch=2)
    disk.cut_power()
    log = open_log(disk, make_log_config(segment_bytes=300), CRASHED)
    assert log.next_offset == 7
    assert log.epochs.entries == [(2, 0)]


def test_truncate_inside_a_batch_drops_the_whole_batch(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(segment_bytes=300))
    for number in range(10):
        append(log, batch(3, producer_id=1, sequence=3 * number), leader_epoch=number)
    log.truncate_to(17)
    assert (log.next_offset, log.high_watermark) == (15, 15)
    assert log.epochs.latest == 4
    assert last_offset_in(read_all(log)) == 14
    producer = log.producers.states.get(1)
    assert producer is not None
    assert producer.last_sequence == 14
    assert append(log, batch(3, producer_id=1, sequence=15, producer_epoch=0)) == 15


def test_truncating_fully_starts_again_at_the_given_offset(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(3))
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.next_offset, log.segments.size_bytes) == (100, 100, 0)
    assert append(log, batch(2)) == 100


def test_deleted_records_are_out_of_range_and_their_segments_go(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(segment_bytes=200, retention_ms=-1))
    for _ in range(6):
        append(log, batch(1))
    assert log.delete_records_before(4) == 4
    assert log.delete_records_before(2) == 4
    with pytest.raises(KafkaError):
        log.delete_records_before(7)
    with pytest.raises(KafkaError):
        log.read(3, max_bytes=1, upto_offset=6, at_least_one=True)
    removed = log.apply_retention(NOW_MS)
    assert [segment.base_offset for segment in removed] == [0, 2]
    assert log.segments[0].base_offset == 4
    assert log.segments.size_bytes == sum(segment.size_bytes for segment in log.segments)


def test_expired_segments_wait_for_their_delay_and_for_readers(disk: MemoryFileSystem) -> None:
    log = open_log(
        disk, make_log_config(segment_bytes=200, retention_ms=1000, file_delete_delay_ms=50)
    )
    for _ in range(3):
        append(log, batch(1))
    found = log.read(0, max_bytes=1, upto_offset=3, at_least_one=True)
    assert found is not None
    found.file.pin()
    now_ms = NOW_MS + 1001
    assert len(log.apply_retention(now_ms)) == 2
    assert (log.log_start_offset, log.next_offset) == (3, 3)
    assert LOG_PATH not in disk.paths()
    log.segments.sweep(now_ms + 49)
    assert f"{LOG_PATH}.deleted" in disk.paths()
    log.segments.sweep(now_ms + 50)
    assert f"{LOG_PATH}.deleted" in disk.paths()
    assert BatchView(memoryview(found.read())).base_offset == 0
    found.file.unpin()
    assert not [path for path in disk.paths() if path.endswith(".deleted")]
    assert append(log, batch(1, timestamp_ms=now_ms)) == 3


def test_nothing_above_the_high_watermark_expires(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(segment_bytes=200, retention_ms=1000))
    log.is_sole_replica = False
    for _ in range(6):
        append(log, batch(1))
    log.high_watermark = 3
    assert [s.base_offset for s in log.apply_retention(NOW_MS + 9999)] == [0]


@pytest.mark.parametrize("timestamp_ms", [-1, NOW_MS + 100_001])
def test_records_that_tell_no_age_expire_on_a_follower_as_on_the_leader(
    disk: MemoryFileSystem, timestamp_ms: int
) -> None:
    config = make_log_config(retention_ms=1000)
    leader = open_log(disk, config)
    follower = open_log(disk, config, directory="/f-0")
    for now_ms in (NOW_MS, NOW_MS + 100_000):
        sent = batch(1, timestamp_ms=timestamp_ms)
        append(leader, sent, now_ms=now_ms)
        follower.append_as_follower(memoryview(sent), now_ms)
        follower.high_watermark = follower.next_offset
    for log in (leader, follower):
        assert log.apply_retention(NOW_MS + 100_000) == []
        # A round of retention looks at the clock once, and may be late for the last partitions.
        assert log.apply_retention(NOW_MS + 10_000) == []
        assert log.apply_retention(NOW_MS + 101_002) != []


def test_files_are_opened_as_needed_within_the_limit(disk: MemoryFileSystem) -> None:
    log = open_log(disk, make_log_config(segment_bytes=200), descriptor_limit=3)
    for _ in range(40):
        append(log, batch(1))
        ticket = log.begin_sync()
        assert ticket is not None
        sync([ticket])
        log.unsynced.end_sync(ticket)
    disk.descriptors_max = disk.open_count
    for _ in range(3):
        assert last_offset_in(read_all(log)) == 39
    assert disk.descriptors_max <= 4


def test_a_new_epoch_is_written_before_its_first_records_are_synced(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    log.epochs.assign(7, 0)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    assert path not in disk.paths()
    assert log.begin_sync() is None
    append(log, batch(1), leader_epoch=7)
    assert path not in disk.paths()
    ticket = log.begin_sync()
    assert ticket is not None
    assert path in ticket.paths
    assert bytes(disk.data(path)) == b"0\n1\n7 0\n"


def test_a_clean_stop_writes_the_epochs(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(1), leader_epoch=7)
    log.finish()
    assert bytes(disk.data(f"{DIRECTORY}/leader-epoch-checkpoint")) == b"0\n1\n7 0\n"


def test_a_clean_reopening_finds_the_same_log(disk: MemoryFileSystem) -> None:
    config = make_log_config(segment_bytes=500, index_interval_bytes=100)
    log: Log = open_log(disk, config)
    for number in range(20):
        append(log, batch(2, timestamp_ms=NOW_MS + number), leader_epoch=3)
    content = read_all(log)
    log.finish()
    log.close()
    again = open_log(disk, config)
    assert read_all(again) == content
    assert again.next_offset == again.synced_offset == 40
    assert again.epochs.entries == [(3, 0)]
    assert again.segments[-1].max_timestamp_ms == NOW_MS + 19
    assert again.begin_sync() is None


def test_a_follower_takes_more_than_a_segment_at_once(disk: MemoryFileSystem) -> None:
    leader = open_log(MemoryFileSystem())
    for _ in range(6):
        append(leader, batch(2))
    follower = open_log(disk, make_log_config(segment_bytes=200))
    appended = follower.append_as_follower(memoryview(bytearray(read_all(leader))))
    assert (appended.base_offset, appended.next_offset) == (0, 12)
    follower.high_watermark = 12
    assert read_all(follower) == read_all(leader)
    assert len(follower.segments) == 3


def test_a_snapshot_of_batches_that_were_cut_is_never_used(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    for number in range(4):
        append(log, batch(1, producer_id=9, sequence=number))
    log.finish()
    size = log.segments.size_bytes // 4
    disk.data(LOG_PATH)[size + 70] ^= 1
    circumstances = Circumstances(was_stopped_cleanly=False, power_was_cut=True, now_ms=NOW_MS)
    log = open_log(disk, circumstances=circumstances)
    assert log.next_offset == 1
    for _ in range(5):
        append(log, batch(1))
    producer = log.producers.states.get(9)
    assert producer is not None
    assert producer.last_sequence == 0


def test_an_unreadable_disk_condemns_the_directory(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    append(log, batch(1))
    log.finish()
    log.close()
    log = open_log(disk)
    log.close()
    disk.open_error = errno.EIO
    with pytest.raises(LogDirFailed):
        log.read(0, max_bytes=1, upto_offset=1, at_least_one=True)


def test_retention_on_a_full_disk_removes_what_needs_no_room() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, make_log_config(segment_bytes=200, retention_ms=1000))
    for _ in range(5):
        append(log, batch(1, value=b"x" * 100))
    count = len(log.segments)
    assert count > 1
    disk.free_bytes = 0
    assert len(log.apply_retention(NOW_MS + 9999)) == count - 1
    with pytest.raises(NoSpace):
        log.apply_retention(NOW_MS + 9999)
    disk.free_bytes = None
    assert len(log.apply_retention(NOW_MS + 9999)) == 1
    assert log.log_start_offset == log.next_offset == 5


def test_a_large_batch_is_left_to_a_thread_by_lookups_of_time(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    records = [Record(index, 100 + index, None, bytes(1000)) for index in range(1000)]
    append(log, build_batch(records, base_offset=0, codec=Codec.ZSTD))
    wanted = {"from_offset": 0, "upto_offset": log.next_offset}
    with pytest.raises(LargeBatch) as raised:
        find_timestamp(log.segments, 600, **wanted)
    searched = {raised.value.base_offset: raised.value.search()}
    found = find_timestamp(log.segments, 600, **wanted, searched=searched)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (600, 500)


def test_lookups_of_time_end_where_batches_promise_what_they_do_not_have(
    disk: MemoryFileSystem,
) -> None:
    log = open_log(disk)
    for offset in range(100):
        data = batch(1, timestamp_ms=10)
        data[0:8] = offset.to_bytes(8, "big")
        data[35:43] = (99).to_bytes(8, "big")
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        log.append_as_follower(memoryview(data))
    found = find_timestamp(log.segments, 50, from_offset=0, upto_offset=100)
    assert found is not None
    assert found.offset < 20
