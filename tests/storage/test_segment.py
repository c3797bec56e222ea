"""One segment: what its indexes say never changes what it answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.storage.segment import IndexBuilder, Segment
from tests.storage.logs import (
    CLEAN,
    INDEX_PATH,
    NOW_MS,
    TIMES_PATH,
    append,
    batch,
    first_since,
    make_log_config,
    open_log,
)
from tests.storage.memory_files import MemoryFileSystem

CONFIG = make_log_config(index_interval_bytes=150)


def scan_for_offset(segment: Segment, offset: int) -> tuple[int, int] | None:
    for position, header in segment.headers():
        if header.last_offset >= offset:
            return position, header.size_bytes
    return None


def scan_for_timestamp(segment: Segment, timestamp_ms: int) -> tuple[int, int] | None:
    for position, header in segment.headers():
        if header.max_timestamp_ms >= timestamp_ms:
            return position, header.size_bytes
    return None


def closed_disk(stamps: list[int], counts: list[int]) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    log = open_log(disk, CONFIG)
    for stamp, count in zip(stamps, counts, strict=False):
        append(log, batch(count, timestamp_ms=stamp))
    log.finish()
    log.close()
    return disk


@st.composite
def corruptions(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(["flip", "set", "cut", "extend", "zero", "swap"])
    one = st.tuples(kinds, st.integers(0, 10_000), st.integers(0, 255))
    return draw(st.lists(one, max_size=4))


def corrupt(data: bytearray, kind: str, where: int, value: int, entry_bytes: int) -> None:
    if kind == "extend":
        data.extend(bytes([value]) * (where % 40))
        return
    if not data:
        return
    at = where % len(data)
    entries = len(data) // entry_bytes
    if kind == "flip":
        data[at] ^= 1 << (value % 8)
    elif kind == "set":
        data[at] = value
    elif kind == "cut":
        del data[at:]
    elif kind == "zero":
        data[at : at + value] = bytes(len(data[at : at + value]))
    elif kind == "swap" and entries > 1:
        first, second = (where % entries) * entry_bytes, (value % entries) * entry_bytes
        kept = data[first : first + entry_bytes]
        data[first : first + entry_bytes] = data[second : second + entry_bytes]
        data[second : second + entry_bytes] = kept


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=40),
    corruptions(),
    corruptions(),
    st.data(),
)
def test_lookups_equal_a_linear_scan_whatever_happened_to_the_indexes(
    counts: list[int],
    index_harm: list[tuple[str, int, int]],
    times_harm: list[tuple[str, int, int]],
    data: st.DataObject,
) -> None:
    stamps = [NOW_MS + 7 * number for number in range(len(counts))]
    disk = closed_disk(stamps, counts)
    for kind, where, value in index_harm:
        corrupt(disk.data(INDEX_PATH), kind, where, value, 8)
    for kind, where, value in times_harm:
        corrupt(disk.data(TIMES_PATH), kind, where, value, 12)
    if data.draw(st.booleans()):
        log = open_log(disk, CONFIG, CLEAN)
        segment = log.segments[0]
        assert log.next_offset == sum(counts)
        assert segment.read_max_timestamp() == stamps[-1]
    else:
        # As a rolled segment, which nobody looks at before it is used.
        segment = open_log_without_loading(disk)
    for offset in data.draw(st.permutations(range(sum(counts) + 1)))[:12]:
        assert segment.find(offset) == scan_for_offset(segment, offset)
    for stamp in [*stamps[:: max(1, len(stamps) // 6)], stamps[-1] + 1, 0]:
        found = first_since(segment, stamp)
        assert found == scan_for_timestamp(segment, stamp)
    assert segment.read_max_timestamp() == stamps[-1]


def open_log_without_loading(disk: MemoryFileSystem) -> Segment:
    from millstream.storage.files import DescriptorCache
    from millstream.storage.segment_files import make_segment
    from tests.storage.logs import DIRECTORY

    found = {info.name: info for info in disk.list(DIRECTORY)}
    cache = DescriptorCache(disk, 100)
    return make_segment(cache, DIRECTORY, 0, CONFIG, found=found, now_ms=NOW_MS)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_times_are_found_in_any_order_of_timestamps(stamps: list[int]) -> None:
    disk = closed_disk(stamps, [1] * len(stamps))
    segment = open_log_without_loading(disk)
    for stamp in range(52):
        found = first_since(segment, stamp)
        assert found == scan_for_timestamp(segment, stamp)
    assert segment.read_max_timestamp() == max(stamps)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=40))
def test_a_rebuilt_index_is_byte_for_byte_what_appending_wrote(
    batches: list[tuple[int, int]],
) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, CONFIG)
    builder = IndexBuilder(0, CONFIG.index_interval_bytes)
    for count, stamp in batches:
        append(log, batch(count, timestamp_ms=stamp))
    segment = log.segments[0]
    for position, header in segment.headers():
        builder.add(position, header.size_bytes, header.last_offset, header.max_timestamp_ms)
    assert segment.index.entries.bytes() == bytes(builder.index)
    assert segment.times.entries.bytes() == bytes(builder.times)
    assert segment.bytes_since_entry == builder.bytes_since_entry
    segment.finish()
    before = (bytes(disk.data(INDEX_PATH)), bytes(disk.data(TIMES_PATH)))
    segment.rebuild_indexes()
    segment.flush_indexes()
    assert (bytes(disk.data(INDEX_PATH)), bytes(disk.data(TIMES_PATH))) == before


def test_an_index_entry_names_the_last_offset_and_the_position_of_its_batch() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, make_log_config(index_interval_bytes=100))
    for number in range(4):
        append(log, batch(2, timestamp_ms=NOW_MS + number))
    segment = log.segments[0]
    size = segment.size_bytes // 4
    # The first batch never has an entry, and one follows every 101 bytes or more.
    assert segment.index.get(0) == (5, 2 * size)
    assert segment.index.count == 1
    assert segment.times.get(0) == (NOW_MS + 2, 5)
    segment.finish()
    assert segment.times.last() == (NOW_MS + 3, 7)


def test_entries_of_older_kafkas_for_several_batches_at_once_are_understood() -> None:
    disk = closed_disk([NOW_MS] * 12, [1] * 12)
    segment = open_log_without_loading(disk)
    third = scan_for_offset(segment, 2)
    assert third is not None
    disk.data(INDEX_PATH)[:] = (6).to_bytes(4, "big") + third[0].to_bytes(4, "big")
    segment = open_log_without_loading(disk)
    for offset in range(12):
        assert segment.find(offset) == scan_for_offset(segment, offset)
    assert bytes(disk.data(INDEX_PATH))[:4] == (6).to_bytes(4, "big")


def test_a_damaged_log_is_reported_where_a_reader_meets_it() -> None:
    from millstream.storage.values import CorruptLog

    disk = closed_disk([NOW_MS] * 3, [1] * 3)
    segment = open_log_without_loading(disk)
    disk.data(segment.file.path)[16] = 7
    with pytest.raises(CorruptLog, match="position 0"):
        segment.find(2)


def test_a_reader_that_goes_on_where_it_stopped_needs_no_index() -> None:
    disk = closed_disk([NOW_MS] * 12, [2] * 12)
    segment = open_log_without_loading(disk)
    assert segment.find(8) == scan_for_offset(segment, 8)
    disk.data(INDEX_PATH)[:] = b"\xff" * len(disk.data(INDEX_PATH))
    damaged = bytes(disk.data(INDEX_PATH))
    for offset in range(10, 26, 2):
        assert segment.find(offset) == scan_for_offset(segment, offset)
    # Nobody has looked at it, or it would have been built again.
    assert bytes(disk.data(INDEX_PATH)) == damaged


def test_a_range_of_recent_batches_ends_with_a_whole_one() -> None:
    log = open_log(MemoryFileSystem(), CONFIG)
    for count in range(1, 9):
        append(log, batch(count))
    segment = log.segments.active
    headers = list(segment.headers())
    ends = [position + header.size_bytes for position, header in headers]
    for position, header in headers:
        for length in range(header.size_bytes, segment.size_bytes - position + 1):
            whole = max(end for end in ends if end <= position + length)
            if whole < segment.size_bytes:
                assert segment.whole_batches_bytes(position, length) == whole - position


def test_a_range_of_batches_that_are_not_remembered_stays_as_it_is() -> None:
    segment = open_log_without_loading(closed_disk([NOW_MS] * 5, [2] * 5))
    assert segment.whole_batches_bytes(0, 100) == 100


def test_where_a_reader_stopped_is_forgotten_when_the_segment_is_cut() -> None:
    disk = closed_disk([NOW_MS] * 12, [1] * 12)
    segment = open_log_without_loading(disk)
    found = segment.find(9)
    assert found is not None
    position, size_bytes = found
    # Offset 10 is where it would go on.
    segment.prepare_truncation(position - 2 * size_bytes, 7)
    segment.truncate(position - 2 * size_bytes, 7)
    assert segment.find(10) is None
    assert segment.find(6) == scan_for_offset(segment, 6)
