"""Opening a directory after a clean stop, a crash, a power cut, and with damaged files."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millstream.records.batch import BatchView, split_batches
from millstream.storage.log import CorruptLog, Log, LogConfig
from millstream.storage.recovery import Circumstances
from tests.storage.logs import (
    CLEAN,
    CRASHED,
    DIRECTORY,
    INDEX_PATH,
    LOG_PATH,
    NOW_MS,
    TIMES_PATH,
    append,
    append_as_leader,
    batch,
    make_log_config,
    offset_for_timestamp,
    open_log,
    read_all,
)
from tests.storage.memory_files import MemoryFileSystem

EPOCHS_PATH = f"{DIRECTORY}/leader-epoch-checkpoint"
CONFIG = make_log_config(index_interval_bytes=150)


def after_power_cut(recovery_point: int = 0) -> Circumstances:
    return Circumstances(
        was_stopped_cleanly=False,
        power_was_cut=True,
        recovery_point=recovery_point,
        now_ms=NOW_MS,
    )


def after_crash(recovery_point: int) -> Circumstances:
    return Circumstances(
        was_stopped_cleanly=False,
        power_was_cut=False,
        recovery_point=recovery_point,
        now_ms=NOW_MS,
    )


def written(counts: list[int], config: LogConfig = CONFIG) -> tuple[MemoryFileSystem, Log]:
    disk = MemoryFileSystem()
    log = open_log(disk, config)
    for number, count in enumerate(counts):
        append(log, batch(count, timestamp_ms=NOW_MS + number), leader_epoch=number // 4)
    return disk, log


def ends_of_batches(data: bytes) -> list[int]:
    ends, position = [0], 0
    for one in split_batches(memoryview(data)):
        position += one.size_bytes
        ends.append(position)
    return ends


def next_offset_of(data: bytes) -> int:
    batches = list(split_batches(memoryview(data)))
    return batches[-1].next_offset if batches else 0


def holds_a_valid_batch(data: bytes, expected_offset: int) -> bool:
    """Tried at every byte, without any cleverness."""
    for position in range(len(data) - 60):
        one = BatchView(memoryview(data)[position:])
        if (
            one.magic == 2
            and one.base_offset >= expected_offset
            and 61 <= one.size_bytes <= len(data) - position
            and one.crc_is_valid()
        ):
            return True
    return False


FULL_DISK, FULL_LOG = written([1, 3, 2, 1, 4, 1])
FULL = bytes(FULL_DISK.data(LOG_PATH))
ENDS = ends_of_batches(FULL)


def disk_with(log_bytes: bytes) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory(DIRECTORY)
    descriptor = disk.open(LOG_PATH, create=True)
    disk.write_at(descriptor, log_bytes, 0)
    disk.close(descriptor)
    return disk


@pytest.mark.parametrize("circumstances", [CRASHED, after_power_cut(), CLEAN])
def test_every_prefix_of_a_segment_recovers_to_its_whole_batches(
    circumstances: Circumstances,
) -> None:
    for length in range(len(FULL) + 1):
        log = open_log(disk_with(FULL[:length]), CONFIG, circumstances)
        whole = max(end for end in ENDS if end <= length)
        assert log.segments.size_bytes == whole
        assert log.next_offset == next_offset_of(FULL[:whole])
        assert read_all(log) == FULL[:whole]


@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.sampled_from(ENDS),
    st.one_of(
        st.binary(min_size=1, max_size=300),
        st.integers(1, 5000).map(bytes),
        st.tuples(st.sampled_from(ENDS[:-1]), st.integers(1, 60)).map(
            lambda cut: FULL[cut[0] : cut[0] + cut[1]]
        ),
        # Batches that were valid elsewhere: their offsets go back.
        st.sampled_from(ENDS[1:]).map(lambda end: FULL[:end]),
    ),
    st.booleans(),
)
def test_a_suffix_without_valid_batches_is_cut_and_nothing_else(
    prefix_end: int, suffix: bytes, power_was_cut: bool
) -> None:
    assume(not holds_a_valid_batch(suffix, next_offset_of(FULL[:prefix_end])))
    circumstances = after_power_cut() if power_was_cut else CRASHED
    disk = disk_with(FULL[:prefix_end] + suffix)
    reports: list[str] = []
    log = open_log(disk, CONFIG, circumstances, reports=reports)
    assert bytes(disk.data(LOG_PATH)) == FULL[:prefix_end]
    assert log.next_offset == next_offset_of(FULL[:prefix_end])
    assert bytes(disk.data(f"{LOG_PATH}.torn")) == suffix
    assert len(reports) == 1
    assert str(log.next_offset) in reports[0]
    assert append(log, batch(1), leader_epoch=9) == next_offset_of(FULL[:prefix_end])


@given(st.integers(0, len(ENDS) - 3), st.data())
@settings(deadline=None)
def test_a_bad_batch_before_good_ones_is_corruption_unless_power_was_cut(
    number: int, data: st.DataObject
) -> None:
    start, end = ENDS[number], ENDS[number + 1]
    damaged = bytearray(FULL)
    # Not the leader epoch, which the checksum leaves out and which may well be larger.
    position = data.draw(
        st.integers(start, end - 1).filter(lambda at: not start + 12 <= at < start + 16)
    )
    flipped = damaged[position] ^ (1 << data.draw(st.integers(0, 7)))
    damaged[position] = flipped
    if start <= position < start + 8:
        # An offset that jumps ahead is a gap; only going back is damage.
        assume(BatchView(memoryview(damaged)[start:]).base_offset < next_offset_of(FULL[:start]))
    before = bytes(damaged)
    bad_offset = next_offset_of(FULL[:start])

    disk = disk_with(before)
    with pytest.raises(CorruptLog, match="intact batches follow"):
        open_log(disk, CONFIG, CRASHED)
    assert bytes(disk.data(LOG_PATH)) == before

    disk = disk_with(before)
    with pytest.raises(CorruptLog, match="was on the disk"):
        open_log(disk, CONFIG, after_power_cut(recovery_point=bad_offset + 1))
    assert bytes(disk.data(LOG_PATH)) == before

    disk = disk_with(before)
    reports: list[str] = []
    log = open_log(disk, CONFIG, after_power_cut(recovery_point=bad_offset), reports=reports)
    assert bytes(disk.data(LOG_PATH)) == FULL[:start]
    assert bytes(disk.data(f"{LOG_PATH}.torn")) == before[start:]
    assert log.next_offset == bad_offset
    assert len(reports) == 1


def test_a_file_that_ends_below_the_recovery_point_is_corruption() -> None:
    disk = disk_with(FULL[: ENDS[2]])
    with pytest.raises(CorruptLog, match="was on the disk"):
        open_log(disk, CONFIG, after_power_cut(recovery_point=next_offset_of(FULL)))
    assert bytes(disk.data(LOG_PATH)) == FULL[: ENDS[2]]


def test_damage_in_one_segment_with_intact_later_segments_is_corruption() -> None:
    config = make_log_config(segment_bytes=300)
    disk, log = written([1] * 9, config)
    assert len(log.segments) > 2
    middle = log.segments[1].file.path
    disk.data(middle)[70] ^= 1
    before = {path: bytes(disk.data(path)) for path in disk.paths() if path.endswith(".log")}
    with pytest.raises(CorruptLog):
        open_log(disk, config, CRASHED)
    assert before == {
        path: bytes(disk.data(path)) for path in disk.paths() if path.endswith(".log")
    }


def test_after_a_power_cut_later_segments_are_kept_aside_whole() -> None:
    config = make_log_config(segment_bytes=300)
    disk, log = written([1] * 9, config)
    damaged, later = log.segments[1], log.segments[2:]
    contents = {s.file.path: bytes(disk.data(s.file.path)) for s in later}
    disk.data(damaged.file.path)[70] ^= 1
    again = open_log(disk, config, after_power_cut())
    assert again.next_offset == damaged.base_offset
    for path, content in contents.items():
        assert bytes(disk.data(f"{path}.torn")) == content
        assert path not in disk.paths()
    assert append(again, batch(1), leader_epoch=9) == damaged.base_offset


def test_a_segment_that_lost_its_end_in_a_power_cut_ends_the_log() -> None:
    config = make_log_config(segment_bytes=300)
    disk, log = written([1] * 9, config)
    shorter = log.segments[1].file.path
    del disk.data(shorter)[ends_of_batches(bytes(disk.data(shorter)))[1] :]
    again = open_log(disk, config, after_power_cut())
    assert again.next_offset == log.segments[1].base_offset + 1
    assert len(again.segments) == 2


def test_segments_below_the_recovery_point_are_not_read() -> None:
    config = make_log_config(segment_bytes=300)
    disk, log = written([1] * 9, config)
    disk.data(log.segments[0].file.path)[70] ^= 1
    again = open_log(disk, config, after_crash(recovery_point=log.segments[1].base_offset))
    assert again.next_offset == 9


def test_after_a_crash_what_was_not_synced_is_still_to_be_synced() -> None:
    disk, _ = written([1, 2])
    log = open_log(disk, CONFIG, after_crash(recovery_point=1))
    assert (log.synced_offset, log.next_offset) == (1, 3)
    assert log.begin_sync() is not None


@pytest.mark.parametrize("path", [INDEX_PATH, TIMES_PATH, EPOCHS_PATH])
@pytest.mark.parametrize("harm", ["remove", "empty", "zeros", "garbage"])
@pytest.mark.parametrize("circumstances", [CLEAN, CRASHED])
def test_lost_and_wrong_side_files_are_rebuilt(
    path: str, harm: str, circumstances: Circumstances
) -> None:
    disk, log = written([1] * 12)
    epochs = log.epochs.entries
    log.finish()
    log.close()
    if harm == "remove":
        disk.remove(path)
    else:
        size = len(disk.data(path))
        disk.data(path)[:] = {"empty": b"", "zeros": bytes(size), "garbage": b"\xa5" * size}[harm]
    again = open_log(disk, CONFIG, circumstances)
    assert again.next_offset == 12
    assert again.epochs.entries == epochs
    for offset in range(12):
        found = again.read(offset, max_bytes=1, upto_offset=12, at_least_one=True)
        assert found is not None
        assert BatchView(memoryview(found.read())).base_offset == offset
        timed = offset_for_timestamp(again, NOW_MS + offset, upto_offset=12)
        assert timed is not None
        assert timed.offset == offset


def test_an_epoch_file_that_missed_an_epoch_is_rebuilt_from_the_log() -> None:
    config = make_log_config(segment_bytes=300)
    disk, log = written([1] * 12, config)
    assert log.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    log.epochs.save()
    disk.data(EPOCHS_PATH)[:] = b"0\n1\n0 0\n"
    again = open_log(disk, config, after_crash(recovery_point=12))
    assert again.epochs.entries == [(0, 0), (1, 4), (2, 8)]


def test_an_epoch_whose_first_batches_were_compacted_away_begins_where_the_file_says() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append_as_leader(log, memoryview(batch(5)), leader_epoch=1, now_ms=NOW_MS)
    # The next leader began at 5; compaction left nothing of its batches before 8.
    log.epochs.assign(2, 5)
    left = BatchView(memoryview(batch(1)))
    left.stamped(8, 2)
    log.append_as_follower(left.bytes)
    log.epochs.save()
    again = open_log(disk, circumstances=after_crash(recovery_point=0))
    assert again.epochs.entries == [(1, 0), (2, 5)]


def test_kafkas_preallocated_indexes_are_accepted_and_appended_to() -> None:
    disk, log = written([1] * 12)
    log.finish()
    log.close()
    entries = bytes(disk.data(INDEX_PATH))
    disk.data(INDEX_PATH).extend(bytes(8 * 100))
    disk.data(TIMES_PATH).extend(bytes(12 * 100))
    again = open_log(disk, CONFIG)
    for number in range(12):
        append(again, batch(1, timestamp_ms=NOW_MS + 20 + number), leader_epoch=3)
    again.finish()
    assert bytes(disk.data(INDEX_PATH)).startswith(entries)
    assert len(disk.data(INDEX_PATH)) < len(entries) + 8 * 12
    assert open_log(disk, CONFIG, CRASHED).next_offset == 24


def test_a_clean_marker_over_a_torn_file_does_not_fool_us() -> None:
    disk, log = written([1, 1])
    log.finish()
    disk.data(LOG_PATH).extend(b"torn")
    reports: list[str] = []
    assert open_log(disk, CONFIG, CLEAN, reports=reports).next_offset == 2
    assert len(reports) == 2


def test_after_a_clean_stop_a_log_that_lost_its_end_is_corrupt() -> None:
    disk, log = written([1, 1])
    log.finish()
    disk.data(LOG_PATH).clear()
    with pytest.raises(CorruptLog, match="all up to offset 2 was on the disk"):
        open_log(disk, CONFIG, replace(CLEAN, recovery_point=2))
    assert open_log(disk, CONFIG, CLEAN).next_offset == 0


def test_files_on_their_way_out_are_removed() -> None:
    disk, _ = written([1])
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.index.cleaned"):
        disk.close(disk.open(f"{DIRECTORY}/{name}", create=True))
    log = open_log(disk, CONFIG)
    log.segments.sweep(NOW_MS)
    assert not [path for path in disk.paths() if path.endswith((".deleted", ".cleaned"))]
