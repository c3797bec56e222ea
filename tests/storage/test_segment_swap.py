"""A crash at every call between the first `.cleaned` byte and the last removal.

After a kill or a power cut the partition is the old set of segments or the new one, for
each compacted segment, and the next round goes through.
"""

import copy

import pytest

from millstream.model import Codec
from millstream.records.control import ControlType
from millstream.storage.compaction_plan import plan_round
from millstream.storage.compaction_round import CleanedSegment, compact_segments
from millstream.storage.log import Log
from millstream.storage.recovery import Circumstances
from millstream.storage.segment_swap import begin_swap, discard, replaced_segments
from millstream.storage.values import CorruptLog
from tests.storage.compacted_logs import (
    CONFIG,
    LIMITS,
    Died,
    DyingFileSystem,
    content,
    end,
    fill,
    keyed,
    new_log,
    newest,
    records_in,
    run_round,
)
from tests.storage.logs import CRASHED, DIRECTORY, NOW_MS, append, open_log
from tests.storage.memory_files import MemoryFileSystem

Content = list[tuple[int, bytes]]


def prepared() -> tuple[DyingFileSystem, Log]:
    """A log whose next round merges some segments, replaces others, and drops a marker."""
    disk = DyingFileSystem()
    log = open_log(disk, CONFIG)
    fill(log, 16)
    run_round(log, disk)
    append(log, keyed([(b"txn", b"aborted")], producer_id=1, sequence=0, is_transactional=True))
    end(log, 1, ControlType.ABORT)
    fill(log, 10, keys=7, codec=Codec.LZ4)
    fill(log, 4)
    disk.sync_everything(0)
    return disk, log


def compacted(disk: DyingFileSystem, log: Log) -> None:
    run_round(log, disk)
    log.segments.sweep(NOW_MS + CONFIG.file_delete_delay_ms)


def states() -> tuple[list[Content], int]:
    """The legal contents, in the order in which they come, and the calls of a whole round."""
    disk, log = prepared()
    legal = [content(log)]
    calls = disk.calls
    run_round(log, disk, between=lambda: legal.append(content(log)))
    legal = [legal[0], *legal[2:], content(log)]
    log.segments.sweep(NOW_MS + CONFIG.file_delete_delay_ms)
    return legal, disk.calls - calls


LEGAL, CALLS = states()
# All of it was on the disk before the round began.
POWER_CUT = Circumstances(
    was_stopped_cleanly=False,
    power_was_cut=True,
    recovery_point=prepared()[1].next_offset,
    now_ms=NOW_MS,
)


def crash_at(call: int) -> DyingFileSystem:
    disk, log = prepared()
    disk.calls_left = call
    with pytest.raises(Died):
        compacted(disk, log)
    disk.calls_left = None
    return disk


def check(disk: MemoryFileSystem, circumstances: Circumstances) -> int:
    """Open what the crash left: which of the legal contents it is."""
    log = open_log(disk, CONFIG, circumstances)
    log.segments.sweep(NOW_MS)
    left = [path for path in disk.paths() if path.endswith((".cleaned", ".swap", ".deleted"))]
    assert left == []
    found = content(log)
    assert found in LEGAL
    return LEGAL.index(found)


def test_the_round_of_these_tests_has_all_there_is() -> None:
    assert CALLS > 60
    assert len(LEGAL) >= 4
    assert len(LEGAL[-1]) < len(LEGAL[0])


@pytest.mark.parametrize("call", range(CALLS))
def test_a_kill_at_any_call_leaves_the_old_segments_or_the_new(call: int) -> None:
    disk = crash_at(call)
    disk.kill()
    check(disk, CRASHED)
    log = open_log(disk, CONFIG, CRASHED)
    latest = newest(records_in(log))
    run_round(log, disk)
    # What was aborted may be gone.
    latest.pop(b"txn", None)
    assert newest(records_in(log)).items() >= latest.items()


@pytest.mark.parametrize("call", range(CALLS))
def test_a_power_cut_at_any_call_leaves_the_old_segments_or_the_new(call: int) -> None:
    found = set()
    crashed = crash_at(call)
    for changes in range(crashed.unsynced_changes + 1):
        disk = copy.deepcopy(crashed)
        disk.cut_after(changes)
        found.add(check(disk, POWER_CUT))
    assert max(found) - min(found) <= 1


def test_a_crash_while_a_start_finishes_the_swap_is_no_different() -> None:
    for call in range(CALLS):
        disk = crash_at(call)
        disk.cut_after(disk.unsynced_changes)
        if not any(path.endswith(".swap") for path in disk.paths()):
            continue
        for second in range(20):
            again = copy.deepcopy(disk)
            again.calls_left = second
            try:
                open_log(again, CONFIG, POWER_CUT)
            except Died:
                again.calls_left = None
                again.cut_after(again.unsynced_changes // 2)
                check(again, POWER_CUT)


class TestReaders:
    def test_a_reader_of_a_replaced_file_goes_on(self) -> None:
        disk, log = new_log()
        fill(log, 20)
        found = log.read(0, max_bytes=1 << 20, upto_offset=log.next_offset, at_least_one=True)
        assert found is not None
        expected = found.read()
        found.file.pin()
        run_round(log, disk)
        log.segments.sweep(NOW_MS + CONFIG.file_delete_delay_ms)
        assert found.file.read_at(found.position, found.length) == expected
        found.file.unpin()
        assert [path for path in disk.paths() if path.endswith(".deleted")] == []

    def test_a_reader_that_looked_up_a_file_before_the_swap_can_still_open_it(self) -> None:
        disk, log = new_log()
        fill(log, 20)
        found = log.read(0, max_bytes=1 << 20, upto_offset=log.next_offset, at_least_one=True)
        assert found is not None
        expected = found.read()
        found.file.close()
        run_round(log, disk)
        assert found.read() == expected


class TestChangedLogs:
    def one_cleaned(self) -> tuple[MemoryFileSystem, Log, CleanedSegment]:
        disk, log = new_log()
        fill(log, 20)
        planned = plan_round(log, LIMITS, cleaned_offset=None, now_ms=NOW_MS)
        assert planned is not None
        return disk, log, next(compact_segments(planned, disk, moved=lambda size: None))

    def test_a_log_that_lost_a_segment_meanwhile_is_not_swapped(self) -> None:
        _, log, cleaned = self.one_cleaned()
        log.delete_records_before(log.segments[1].base_offset)
        assert log.apply_retention(NOW_MS)
        assert replaced_segments(log, cleaned) is None

    def test_a_log_that_was_cut_meanwhile_is_not_swapped(self) -> None:
        _, log, cleaned = self.one_cleaned()
        log.truncate_to(1)
        assert replaced_segments(log, cleaned) is None

    @pytest.mark.parametrize("is_begun", [False, True])
    def test_what_is_discarded_leaves_nothing(self, is_begun: bool) -> None:
        disk, log, cleaned = self.one_cleaned()
        if is_begun:
            begin_swap(log, cleaned)
        discard(disk, DIRECTORY)
        assert not [path for path in disk.paths() if path.endswith((".cleaned", ".swap"))]
        assert content(open_log(disk, CONFIG, CRASHED)) == content(log)


class TestSwapsOfKafkas:
    """Kafka renames the log before its indexes."""

    def begun(self) -> tuple[MemoryFileSystem, Content, Content]:
        """A begun swap of one segment; the contents before and after."""
        disk, log = new_log()
        fill(log, 20)
        before = content(log)
        planned = plan_round(log, LIMITS, cleaned_offset=None, now_ms=NOW_MS)
        assert planned is not None
        cleaned = next(compact_segments(planned, disk, moved=lambda size: None))
        begin_swap(log, cleaned)
        swapped = bytes(disk.data(f"{DIRECTORY}/{0:020d}.log.swap"))
        end = before[len(cleaned.replaced_offsets) :]
        return disk, before, [(0, swapped), *end]

    def test_a_log_whose_indexes_have_their_old_names_does_not_count(self) -> None:
        disk, before, _ = self.begun()
        disk.rename(f"{DIRECTORY}/{0:020d}.index.swap", f"{DIRECTORY}/{0:020d}.index.cleaned")
        assert content(open_log(disk, CONFIG, CRASHED)) == before

    def test_a_log_without_indexes_counts(self) -> None:
        disk, _, after = self.begun()
        for suffix in ("index", "timeindex"):
            disk.remove(f"{DIRECTORY}/{0:020d}.{suffix}.swap")
        assert content(open_log(disk, CONFIG, CRASHED)) == after

    def test_indexes_without_a_log_are_removed(self) -> None:
        disk, before, _ = self.begun()
        disk.remove(f"{DIRECTORY}/{0:020d}.log.swap")
        assert content(open_log(disk, CONFIG, CRASHED)) == before
        assert not [path for path in disk.paths() if path.endswith(".swap")]

    def test_a_damaged_swap_is_for_a_person_to_decide(self) -> None:
        disk, _, _ = self.begun()
        del disk.data(f"{DIRECTORY}/{0:020d}.log.swap")[30:]
        names = disk.paths()
        with pytest.raises(CorruptLog, match="swap"):
            open_log(disk, CONFIG, CRASHED)
        assert disk.paths() == names
