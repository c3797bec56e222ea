"""The segments of one log as a whole: which holds an offset, and how large they are."""

import errno
from typing import NoReturn

import pytest

from millstream.errors import LogDirFailed
from tests.storage.logs import (
    INDEX_PATH,
    NOW_MS,
    append,
    batch,
    make_log_config,
    offset_for_timestamp,
    open_log,
    read_all,
)
from tests.storage.memory_files import MemoryFileSystem


def test_the_last_segment_that_begins_at_or_before_an_offset_holds_it() -> None:
    log = open_log(MemoryFileSystem())
    for _ in range(3):
        append(log, batch(2))
        log.roll()
    segments = log.segments
    assert [segment.base_offset for segment in segments] == [0, 2, 4, 6]
    assert [segments.number_of(offset) for offset in (0, 1, 2, 5, 6, 99)] == [0, 0, 1, 2, 3, 3]
    assert segments.active is segments[-1]
    assert segments.base_offsets() == {0, 2, 4, 6}
    assert segments.size_bytes == 3 * len(batch(2))


def test_an_empty_segment_that_the_next_offsets_do_not_fit_goes() -> None:
    log = open_log(MemoryFileSystem())
    log.segments.begin(7, log.config, 0)
    assert [segment.base_offset for segment in log.segments] == [7]


@pytest.mark.parametrize(("offset", "end"), [(3, 2), (2, 2), (5, 4)])
def test_a_cut_drops_the_whole_batch_and_what_is_behind_it(offset: int, end: int) -> None:
    log = open_log(MemoryFileSystem(), make_log_config())
    for _ in range(2):
        append(log, batch(2))
        log.roll()
    append(log, batch(2))
    assert log.segments.cut_at(offset, log.config) == end
    assert log.segments.active is log.segments[-1]
    assert log.unsynced.truncations == 1


def test_a_cut_lowers_where_the_last_round_of_compaction_ended() -> None:
    log = open_log(MemoryFileSystem())
    for _ in range(3):
        append(log, batch(2))
        log.roll()
    log.truncate_to(5)
    assert log.segments.cleaned_offset is None
    for cleaned_offset, offset, left in [(3, 4, 3), (4, 4, 4), (4, 3, 2)]:
        log.segments.cleaned_offset = cleaned_offset
        log.truncate_to(offset)
        assert log.segments.cleaned_offset == left
    log.truncate_fully_and_start_at(1)
    assert log.segments.cleaned_offset == 1


def test_a_cut_that_cannot_read_leaves_the_log_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for _ in range(3):
        append(log, batch(2))
        log.roll()
    segments = list(log.segments)

    def fail(descriptor: int, length: int, position: int) -> bytes:
        raise OSError(errno.EIO, "cannot read")

    with monkeypatch.context() as broken:
        broken.setattr(disk, "read_at", fail)
        with pytest.raises(OSError, match="cannot read"):
            log.truncate_to(2)
    assert list(log.segments) == segments
    assert log.segments.active is segments[-1]
    log.truncate_to(2)
    assert log.next_offset == 2
    append(log, batch(2))
    assert log.next_offset == 4


def broken_disk(*given: object, **named: object) -> NoReturn:
    raise OSError(errno.EIO, "the disk is broken")


def full_disk(*given: object, **named: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "the disk is full")


def cut_after_reads(readable: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Cut a log on a disk that breaks after some reads, and is repaired; False if that failed."""
    config = make_log_config(index_interval_bytes=100)
    disk = MemoryFileSystem()
    log = open_log(disk, config)
    for number in range(40):
        append(log, batch(2, timestamp_ms=NOW_MS + number))
        if number == 30:
            log.roll()
    log.finish()
    # Nothing of it is in memory any more.
    log = open_log(disk, config)
    before, segments = read_all(log), list(log.segments)
    read, reads = disk.read_at, 0

    def read_some(descriptor: int, length: int, position: int) -> bytes:
        nonlocal reads
        reads += 1
        return read(descriptor, length, position) if reads <= readable else broken_disk()

    is_cut = True
    with monkeypatch.context() as broken:
        broken.setattr(disk, "read_at", read_some)
        try:
            log.truncate_to(21)
        except OSError:
            is_cut = False
    if not is_cut:
        assert (log.next_offset, list(log.segments)) == (80, segments)
        assert log.segments.active is segments[-1]
        assert read_all(log) == read_all(open_log(disk, config)) == before
        log.truncate_to(21)
    assert append(log, batch(2, timestamp_ms=NOW_MS + 10)) == 20
    found = offset_for_timestamp(log, NOW_MS + 9, upto_offset=log.next_offset)
    assert found is not None
    assert found.offset == 18
    assert log.segments.active.read_max_timestamp() == NOW_MS + 10
    return is_cut


def test_a_cut_that_fails_at_any_read_leaves_the_log_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = 0
    while not cut_after_reads(failures, monkeypatch):
        failures += 1
    assert failures >= 4


def test_indexes_that_a_cut_finds_damaged_end_where_the_log_does() -> None:
    config = make_log_config(index_interval_bytes=100)
    disk = MemoryFileSystem()
    log = open_log(disk, config)
    for number in range(40):
        append(log, batch(2, timestamp_ms=NOW_MS + min(number, 5)))
    log.roll()
    index = log.segments[0].index
    damaged = sum(index.get(number)[0] <= 11 for number in range(index.count))
    log.finish()
    # The newest timestamp is found by the last of these.
    disk.data(INDEX_PATH)[8 * damaged - 1] ^= 1
    log = open_log(disk, config)
    log.truncate_to(31)
    segment = log.segments.active
    last, newest = segment.index.last(), segment.times.last()
    assert last is not None
    assert last[0] < 30
    assert segment.bytes_since_entry == segment.size_bytes - last[1]
    assert newest == (NOW_MS + 5, 11)


@pytest.mark.parametrize("fail", [broken_disk, full_disk])
@pytest.mark.parametrize("step", ["rename", "truncate"])
def test_a_cut_that_fails_half_way_is_a_failure_of_the_disk(
    step: str, fail: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for _ in range(3):
        append(log, batch(2))
        if step == "rename":
            log.roll()
    monkeypatch.setattr(disk, step, fail)
    with pytest.raises(LogDirFailed):
        log.truncate_to(2)


def test_a_restart_in_the_middle_of_a_cut_finds_no_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for _ in range(3):
        append(log, batch(2))
        log.roll()
    rename = disk.rename

    def rename_some(old: str, new: str) -> None:
        if "00004" in old:
            broken_disk()
        rename(old, new)

    with monkeypatch.context() as broken:
        broken.setattr(disk, "rename", rename_some)
        with pytest.raises(LogDirFailed):
            log.truncate_to(1)
    assert [each.base_offset for each in open_log(disk).segments] == [0, 2, 4]


@pytest.mark.parametrize("fail", [broken_disk, full_disk])
@pytest.mark.parametrize("step", ["rename", "open"])
def test_starting_again_half_way_is_a_failure_of_the_disk(
    step: str, fail: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, batch(2))
    monkeypatch.setattr(disk, step, fail)
    with pytest.raises(LogDirFailed):
        log.truncate_fully_and_start_at(10)
