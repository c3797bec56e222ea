"""Rounds of compaction over a log in memory."""

import dataclasses

import pytest

from millstream.model import Codec
from millstream.records.batch import CRC_START, HEADER_BYTES, BatchView, split_batches
from millstream.records.checksum import crc32c
from millstream.records.columns import COMPILED, PURE, Implementation, is_readable
from millstream.records.control import ControlType
from millstream.records.records import Record, read_records
from millstream.storage.compaction_plan import CompactionLimits, measure, plan_round
from millstream.storage.compaction_round import CannotCompact, CleanedSegment, Round
from millstream.storage.log import Log
from millstream.storage.segment import Segment
from tests.storage.compacted_logs import (
    CONFIG,
    LIMITS,
    content,
    end,
    fill,
    keyed,
    new_log,
    newest,
    records_in,
    run_round,
)
from tests.storage.logs import CRASHED, NOW_MS, append, offset_for_timestamp, open_log
from tests.storage.memory_files import MemoryFileSystem

BOTH = [pytest.param(PURE, id="pure"), pytest.param(COMPILED, id="compiled")]
DAY_MS = 86_400_000


def reopened(disk: MemoryFileSystem) -> Log:
    return open_log(disk, CONFIG, CRASHED)


def spoil(disk: MemoryFileSystem, segment: Segment) -> bytes:
    """Make the second record of the first batch unreadable under a right checksum; the batch."""
    data = disk.data(segment.file.path)
    first = BatchView(memoryview(bytes(data)))
    batch = bytearray(first.bytes)
    # Records of one size, the second of which now has less than nothing; or what no codec reads.
    is_plain = first.codec is Codec.NONE
    batch[(HEADER_BYTES + len(batch)) // 2 if is_plain else HEADER_BYTES] = 1
    batch[17:CRC_START] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    data[: len(batch)] = batch
    return bytes(batch)


def readable_records(log: Log) -> list[Record]:
    return [
        record
        for segment in log.segments
        for batch in split_batches(memoryview(segment.file.read_at(0, segment.size_bytes)))
        if is_readable(batch)
        for record in read_records(batch, limit_bytes=1 << 20)
    ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("implementation", BOTH)
def test_the_newest_record_of_each_key_stays_where_it_was(
    implementation: Implementation, codec: Codec
) -> None:
    disk, log = new_log()
    fill(log, 20, codec=codec)
    before = records_in(log)
    active = log.segments[-1]
    run_round(log, disk, implementation=implementation)
    after = records_in(log)
    assert newest(after) == newest(before)
    closed = [record for record in after if record.offset < active.base_offset]
    assert len(closed) == 3
    assert all(record in before for record in after)
    assert [record.offset for record in after] == sorted(record.offset for record in after)
    assert log.segments[-1] is active
    assert content(reopened(disk)) == content(log)


def test_batches_keep_the_codec_of_their_producer() -> None:
    disk, log = new_log()
    for _ in range(8):
        append(log, keyed([(b"a", b"x" * 50), (b"b", b"y" * 50)], codec=Codec.ZSTD))
        append(log, keyed([(b"a", b"x" * 50)], codec=Codec.GZIP))
    run_round(log, disk)
    codecs = {
        batch.codec
        for segment in log.segments[:-1]
        for batch in split_batches(memoryview(segment.file.read_at(0, segment.size_bytes)))
        if batch.record_count
    }
    assert codecs == {Codec.ZSTD, Codec.GZIP}


def test_small_neighbours_become_one_segment() -> None:
    disk, log = new_log()
    fill(log, 40)
    count = len(log.segments)
    active_base = log.segments[-1].base_offset
    run_round(log, disk)
    fill(log, 12)
    done = run_round(log, disk, cleaned_offset=active_base)
    assert len(log.segments) < count
    assert any(len(cleaned.replaced_offsets) > 1 for cleaned in done)
    assert all(segment.size_bytes <= CONFIG.segment_bytes for segment in log.segments)
    assert log.segments.size_bytes == sum(segment.size_bytes for segment in log.segments)


def test_reads_by_offset_and_time_agree_with_the_batches_after_compaction() -> None:
    disk, log = new_log()
    for number in range(60):
        append(log, keyed([(b"k%d" % (number % 25), b"v" * 30)], timestamp_ms=NOW_MS + number * 10))
    run_round(log, disk)
    records = records_in(log)
    for offset in range(log.next_offset):
        expected = next(record.offset for record in records if record.offset >= offset)
        found = log.read(offset, max_bytes=1, upto_offset=log.next_offset, at_least_one=True)
        assert found is not None
        assert BatchView(memoryview(found.read())).last_offset >= offset
        first = read_first(log, offset)
        assert first == expected
    for number in range(60):
        wanted = NOW_MS + number * 10
        answer = offset_for_timestamp(log, wanted, upto_offset=log.next_offset)
        assert answer is not None
        assert answer.offset == next(r.offset for r in records if r.timestamp_ms >= wanted)


def read_first(log: Log, offset: int) -> int:
    """The first record at or after `offset`, as a consumer comes to it: by fetches."""
    from millstream.records.records import read_records

    while True:
        found = log.read(offset, max_bytes=1 << 20, upto_offset=log.next_offset, at_least_one=True)
        assert found is not None
        for batch in split_batches(memoryview(found.read())):
            for record in read_records(batch, limit_bytes=1 << 20):
                if record.offset >= offset:
                    return record.offset
            offset = max(offset, batch.next_offset)


def test_a_read_never_answers_with_empty_batches_only_but_at_the_end() -> None:
    disk, log = new_log()
    fill(log, 40)
    run_round(log, disk)
    sizes = {s.base_offset: s.size_bytes for s in log.segments[:-1]}
    assert 61 in sizes.values(), "the test wants a segment that is one empty batch"
    end = log.next_offset
    for offset in range(end):
        found = log.read(offset, max_bytes=1 << 20, upto_offset=end, at_least_one=True)
        assert found is not None
        assert BatchView(memoryview(found.read())).record_count > 0
    # Where nothing but empty batches may be read, they take the reader on.
    base = next(base for base, size in sizes.items() if size == 61)
    following = next(s.base_offset for s in log.segments if s.base_offset > base)
    found = log.read(base, max_bytes=1 << 20, upto_offset=following, at_least_one=True)
    assert found is not None
    last = BatchView(memoryview(found.read()))
    assert (last.record_count, last.next_offset) == (0, following)


def test_a_compacted_segment_ends_where_the_old_ones_did() -> None:
    disk, log = new_log()
    fill(log, 40)
    run_round(log, disk)
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        last = list(split_batches(memoryview(segment.file.read_at(0, segment.size_bytes))))[-1]
        assert last.next_offset == following.base_offset


def test_more_keys_than_fit_take_several_rounds() -> None:
    disk, log = new_log()
    for number in range(60):
        append(log, keyed([(b"k%d" % (number % 20), b"v%d" % number)]))
    before = newest(records_in(log))
    limits = CompactionLimits(keys_bytes=24 * 12, load_factor=0.9, buffer_bytes=1 << 16)
    cleaned_offset, rounds = None, 0
    while done := run_round(log, disk, cleaned_offset=cleaned_offset, limits=limits):
        assert done[-1].keys <= 10
        assert cleaned_offset is None or done[-1].end_offset > cleaned_offset
        cleaned_offset, rounds = done[-1].end_offset, rounds + 1
    assert rounds > 3
    assert newest(records_in(log)) == before
    closed = [r for r in records_in(log) if r.offset < log.segments[-1].base_offset]
    assert len(closed) < 30


@pytest.mark.parametrize("implementation", BOTH)
def test_a_round_may_end_inside_a_batch(implementation: Implementation) -> None:
    disk, log = new_log()
    append(log, keyed([(b"%d" % (number % 15), b"%d" % number) for number in range(20)]))
    log.roll(NOW_MS)
    before = newest(records_in(log))
    limits = CompactionLimits(4 * implementation.ENTRY_BYTES, 1.0, buffer_bytes=1 << 16)
    cleaned_offset, ends = None, []
    while done := run_round(
        log, disk, cleaned_offset=cleaned_offset, limits=limits, implementation=implementation
    ):
        cleaned_offset = done[-1].end_offset
        ends.append(cleaned_offset)
    assert ends == [4, 8, 12, 16, 20]
    assert newest(records_in(log)) == before
    assert len(records_in(log)) == 15


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    disk, log = new_log()
    append(log, keyed([(b"gone", b"1"), (b"here", b"2")]))
    append(log, keyed([(b"gone", None)]))
    fill(log, 10)
    run_round(log, disk)
    assert newest(records_in(log))[b"gone"] == (2, None)
    end = log.segments[-1].base_offset
    fill(log, 10)
    run_round(log, disk, cleaned_offset=end, now_ms=NOW_MS + DAY_MS - 1)
    assert newest(records_in(log))[b"gone"] == (2, None)
    end = log.segments[-1].base_offset
    fill(log, 10)
    run_round(log, disk, cleaned_offset=end, now_ms=NOW_MS + DAY_MS)
    assert b"gone" not in newest(records_in(log))
    assert newest(records_in(log))[b"here"] == (1, b"2")


def test_a_producer_can_go_on_after_compaction_and_a_restart() -> None:
    disk, log = new_log()
    append(log, keyed([(b"k0", b"old"), (b"k0", b"old")], producer_id=9, sequence=0))
    fill(log, 12)
    run_round(log, disk)
    assert all(record.value != b"old" for record in records_in(log))
    for path in [path for path in disk.paths() if path.endswith(".snapshot")]:
        disk.remove(path)
    again = reopened(disk)
    producer = again.producers.states.get(9)
    assert producer is not None
    assert producer.last_sequence == 1
    append(again, keyed([(b"k0", b"next")], producer_id=9, sequence=2))


def test_the_active_segment_and_undecided_records_are_left_alone() -> None:
    disk, log = new_log()
    fill(log, 20)
    log.is_sole_replica = False
    log.high_watermark = log.segments[2].base_offset + 1
    untouched = content(log)[2:]
    run_round(log, disk)
    assert content(log)[-len(untouched) :] == untouched


def transaction(log: Log, producer_id: int, keys: list[bytes], sequence: int) -> None:
    for index, key in enumerate(keys):
        append(
            log,
            keyed(
                [(key, b"by %d" % producer_id)],
                producer_id=producer_id,
                sequence=sequence + index,
                is_transactional=True,
            ),
        )


class TestTransactions:
    def log(self) -> tuple[MemoryFileSystem, Log]:
        disk, log = new_log()
        append(log, keyed([(b"a", b"before")]))
        transaction(log, 1, [b"a", b"b"], 0)
        end(log, 1, ControlType.ABORT)
        transaction(log, 2, [b"b", b"c"], 0)
        end(log, 2, ControlType.COMMIT)
        log.roll(NOW_MS)
        return disk, log

    def markers(self, log: Log) -> list[BatchView]:
        return [
            batch
            for segment in log.segments
            for batch in split_batches(memoryview(segment.file.read_at(0, segment.size_bytes)))
            if batch.is_control
        ]

    def test_aborted_records_go_and_committed_ones_stay(self) -> None:
        disk, log = self.log()
        run_round(log, disk)
        assert newest(records_in(log)) == {
            b"a": (0, b"before"),
            b"b": (4, b"by 2"),
            b"c": (5, b"by 2"),
        }

    def test_a_marker_outlives_its_records_by_delete_retention(self) -> None:
        disk, log = self.log()
        run_round(log, disk)
        assert len(self.markers(log)) == 2
        assert [aborted.producer_id for s in log.segments for aborted in s.aborted] == [1]
        steps = [(NOW_MS, 2), (NOW_MS, 2), (NOW_MS + DAY_MS, 1)]
        for now_ms, left in steps:
            cleaned_offset = log.segments[-1].base_offset
            # Newer batches of both producers, so that nothing is kept for their sequence.
            for producer_id in (1, 2):
                producer = log.producers.states.get(producer_id)
                assert producer is not None
                sequence = producer.last_sequence + 1
                append(log, keyed([(b"x", b"")], producer_id=producer_id, sequence=sequence))
            log.roll(NOW_MS)
            run_round(log, disk, cleaned_offset=cleaned_offset, now_ms=now_ms)
            assert len([b for b in self.markers(log) if b.record_count]) == left
        # The committed transaction has records, so its marker stays.
        assert self.markers(log)[0].producer_id == 2
        assert [aborted for s in log.segments for aborted in s.aborted] == []

    def test_the_state_of_producers_survives_a_restart_without_snapshots(self) -> None:
        disk, log = self.log()
        before = {producer_id: each.last_sequence for producer_id, each in log.producers.states}
        run_round(log, disk)
        for path in [path for path in disk.paths() if path.endswith(".snapshot")]:
            disk.remove(path)
        again = reopened(disk)
        assert {
            producer_id: each.last_sequence for producer_id, each in again.producers.states
        } == before
        assert again.last_stable_offset == again.next_offset


class TestDamage:
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    def test_a_damaged_segment_is_reported_and_left_alone(self, codec: Codec) -> None:
        disk, log = new_log()
        fill(log, 20, codec=codec)
        before, latest = content(log), newest(records_in(log))
        path = log.segments[1].file.path
        disk.data(path)[75] ^= 0xFF
        with pytest.raises(CannotCompact, match=path):
            run_round(log, disk)
        disk.data(path)[75] ^= 0xFF
        # Segments before the damaged one may be compacted already.
        assert content(log)[-1:] == before[-1:]
        assert newest(records_in(log)) == latest

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    @pytest.mark.parametrize("implementation", BOTH)
    def test_a_batch_that_cannot_be_read_stays_and_its_keys_do_not_count(
        self, implementation: Implementation, codec: Codec
    ) -> None:
        disk, log = new_log()
        fill(log, 20, codec=codec)
        spoiled = [spoil(disk, log.segments[number]) for number in (1, 2)]
        before = newest(readable_records(log))
        done = run_round(log, disk, implementation=implementation)
        assert sum(cleaned.unreadable_batches for cleaned in done) == len(spoiled)
        assert newest(readable_records(log)) == before
        assert len(readable_records(log)) < 20
        everything = b"".join(data for _, data in content(log))
        assert all(each in everything for each in spoiled)
        assert content(reopened(disk)) == content(log)
        # It is met again when later records are compacted.
        fill(log, 20, codec=codec)
        before = newest(readable_records(log))
        run_round(log, disk, cleaned_offset=done[-1].end_offset, implementation=implementation)
        assert newest(readable_records(log)) == before

    def test_a_batch_larger_than_the_buffer_is_compacted_too(self) -> None:
        disk, log = new_log()
        config = dataclasses.replace(CONFIG, segment_bytes=1 << 20)
        log.update_config(config)
        for _ in range(3):
            append(log, keyed([(b"large", b"x" * 100_000), (b"small", b"y")]))
        log.roll(NOW_MS)
        run_round(log, disk)
        assert [record.key for record in records_in(log)] == [b"large", b"small"]


def test_a_round_and_its_results_survive_being_written_down() -> None:
    _, log = new_log()
    fill(log, 20)
    planned = plan_round(log, LIMITS, cleaned_offset=None, now_ms=NOW_MS)
    assert planned is not None
    assert Round.from_plain(planned.to_plain()) == planned
    cleaned = CleanedSegment(0, (0, 4), 10, 5, 3, 2, 8, 12, -1, 1, 2, 9)
    assert CleanedSegment.from_plain(dataclasses.asdict(cleaned)) == cleaned


def test_a_clean_log_has_nothing_to_do() -> None:
    disk, log = new_log()
    fill(log, 20)
    [*_, last] = run_round(log, disk)
    assert last.end_offset == log.segments[-1].base_offset
    assert run_round(log, disk, cleaned_offset=last.end_offset) == []
    assert measure(log, cleaned_offset=last.end_offset, now_ms=NOW_MS).dirty_bytes == 0
