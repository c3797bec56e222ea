"""When a segment is full."""

import pytest

from millstream.records.batch import BatchView
from millstream.storage.log import LogConfig
from millstream.storage.rolling import TINY_BYTES, TINY_MS_MIN, has_room
from millstream.storage.segment import Segment
from tests.storage.logs import NOW_MS, append, batch, make_log_config, open_log
from tests.storage.memory_files import MemoryFileSystem


def large() -> bytearray:
    """A batch after which a segment is not tiny any more."""
    return batch(1, value=bytes(TINY_BYTES))


def used_segment() -> Segment:
    log = open_log(MemoryFileSystem())
    append(log, large())
    return log.segments[0]


def ask(
    segment: Segment,
    config: LogConfig | None = None,
    *,
    size_bytes: int = 10,
    timestamp_ms: int = NOW_MS,
    last_offset: int = 1,
    now_ms: int | None = NOW_MS,
) -> bool:
    return has_room(
        segment,
        config or make_log_config(),
        size_bytes=size_bytes,
        timestamp_ms=timestamp_ms,
        last_offset=last_offset,
        now_ms=now_ms,
    )


def test_bytes_up_to_the_limit_fit() -> None:
    segment = used_segment()
    config = make_log_config(segment_bytes=segment.size_bytes + 10)
    assert ask(segment, config)
    assert not ask(segment, config, size_bytes=11)


def test_age_counts_in_the_records_own_time() -> None:
    segment = used_segment()
    config = make_log_config(segment_ms=1000)
    assert ask(segment, config, timestamp_ms=NOW_MS + 1000, now_ms=NOW_MS + 10**9)
    assert not ask(segment, config, timestamp_ms=NOW_MS + 1001)
    assert ask(segment, config, timestamp_ms=0)


def longest_age_ms(segment: Segment, config: LogConfig) -> int:
    ages = range(config.segment_ms + 2)
    return max(age for age in ages if ask(segment, config, timestamp_ms=NOW_MS + age))


@pytest.mark.parametrize("jitter_ms", [100, 5000])
def test_segments_do_not_all_close_at_the_same_age(jitter_ms: int) -> None:
    log = open_log(MemoryFileSystem(), make_log_config(segment_bytes=used_segment().size_bytes))
    for _ in range(8):
        append(log, large())
    config = make_log_config(segment_ms=1000, segment_jitter_ms=jitter_ms)
    ages = {longest_age_ms(segment, config) for segment in log.segments}
    assert len(ages) > 4
    assert max(0, 1000 - jitter_ms) < min(ages) <= max(ages) <= 1000


def test_without_timestamps_the_clock_counts() -> None:
    log = open_log(MemoryFileSystem())
    append(log, batch(1, timestamp_ms=-1))
    config = make_log_config(segment_ms=1000)
    assert ask(log.segments[0], config, timestamp_ms=-1, now_ms=NOW_MS + 1000)
    assert not ask(log.segments[0], config, timestamp_ms=-1, now_ms=NOW_MS + 1001)


@pytest.mark.parametrize(("last_offset", "fits"), [(2**31 - 1, True), (2**31, False)])
def test_relative_offsets_have_31_bits(last_offset: int, fits: bool) -> None:
    assert ask(used_segment(), last_offset=last_offset) is fits
    empty = open_log(MemoryFileSystem()).segments[0]
    assert ask(empty, last_offset=last_offset) is fits


def test_an_empty_segment_takes_what_is_larger_than_its_limit() -> None:
    empty = open_log(MemoryFileSystem()).segments[0]
    assert ask(empty, make_log_config(segment_bytes=5, segment_index_bytes=0))


@pytest.mark.parametrize("index_bytes", [4, 12, 24, 36])
def test_no_index_is_so_small_that_it_fills_a_tiny_segment(index_bytes: int) -> None:
    log = open_log(
        MemoryFileSystem(), make_log_config(segment_index_bytes=index_bytes, index_interval_bytes=0)
    )
    while log.segments.active.size_bytes < TINY_BYTES:
        append(log, batch(1))
        assert len(log.segments) == 1
    append(log, batch(1))
    assert len(log.segments) == 2


def test_records_of_all_times_begin_no_tiny_segments() -> None:
    log = open_log(MemoryFileSystem(), make_log_config(segment_ms=1))
    append(log, large())
    for number in range(100):
        append(log, batch(1, timestamp_ms=NOW_MS + 1000 * number))
    assert len(log.segments) == 2
    append(log, large())
    append(log, batch(1, timestamp_ms=NOW_MS + 1_000_000))
    assert len(log.segments) == 3


@pytest.mark.parametrize(("first_ms", "timestamp_ms"), [(-1, -1), (NOW_MS - 10**10, NOW_MS)])
def test_a_tiny_segment_lasts_a_second_at_least(first_ms: int, timestamp_ms: int) -> None:
    log = open_log(MemoryFileSystem(), make_log_config(segment_ms=1))
    append(log, batch(1, timestamp_ms=first_ms))
    append(log, batch(1, timestamp_ms=timestamp_ms), now_ms=NOW_MS + TINY_MS_MIN - 1)
    assert len(log.segments) == 1
    append(log, batch(1, timestamp_ms=timestamp_ms), now_ms=NOW_MS + TINY_MS_MIN)
    assert len(log.segments) == 2


def test_after_that_second_the_time_of_its_records_counts() -> None:
    log = open_log(MemoryFileSystem())
    first_ms = NOW_MS - 2 * make_log_config().segment_ms
    last_ms = first_ms + make_log_config().segment_ms
    append(log, batch(1, timestamp_ms=first_ms))
    append(log, batch(1, timestamp_ms=last_ms), now_ms=NOW_MS + TINY_MS_MIN)
    assert len(log.segments) == 1
    append(log, batch(1, timestamp_ms=last_ms + 1), now_ms=NOW_MS + TINY_MS_MIN)
    assert len(log.segments) == 2


def test_a_clock_that_was_set_back_does_not_keep_a_segment_open() -> None:
    log = open_log(MemoryFileSystem(), make_log_config(segment_ms=1000))
    append(log, batch(1))
    append(log, batch(1, timestamp_ms=NOW_MS + 1001), now_ms=NOW_MS - 1)
    assert len(log.segments) == 2


def test_a_follower_begins_no_tiny_segments_either() -> None:
    config = make_log_config(segment_ms=1, segment_index_bytes=4, index_interval_bytes=0)
    log = open_log(MemoryFileSystem(), config)
    for offset in range(100):
        data = memoryview(batch(1, timestamp_ms=NOW_MS + 1000 * offset))
        BatchView(data).stamped(offset, 0)
        log.append_as_follower(data, NOW_MS)
    assert len(log.segments) == 1


def test_a_full_index_fills_the_segment() -> None:
    segment = used_segment()
    segment.index_entries = 2
    assert ask(segment, make_log_config(segment_index_bytes=48))
    assert not ask(segment, make_log_config(segment_index_bytes=47))
