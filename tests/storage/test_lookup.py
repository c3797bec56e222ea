"""Lookups by time over batches that are intact, but whose records cannot be read or whose header is
false."""

import logging
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from millstream.model import Codec
from millstream.records.batch import BatchView
from millstream.storage.log import Log
from millstream.storage.lookup import LargeBatch, find_max_timestamp, find_timestamp
from millstream.storage.segment import Segment
from millstream.storage.values import TimestampOffset
from tests.storage.logs import NOW_MS, append, batch, make_log_config, open_log
from tests.storage.memory_files import MemoryFileSystem

_HEADER_BYTES = 61
_LARGE_BYTES = 1 << 19


def stored(offset: int, timestamp_ms: int, *, codec: Codec = Codec.NONE) -> bytearray:
    """A batch of one record as a follower gets it."""
    data = batch(1, timestamp_ms=timestamp_ms, codec=codec)
    data[0:8] = offset.to_bytes(8, "big")
    return data


def unreadable(
    offset: int, timestamp_ms: int, *, codec: Codec = Codec.NONE, garbage: bytes = b"\xff" * 30
) -> bytearray:
    """The header is in order, and the checksum fits the garbage behind it."""
    data = stored(offset, timestamp_ms, codec=codec)
    data[_HEADER_BYTES:] = garbage
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


def log_of(*batches: bytearray) -> Log:
    log = open_log(MemoryFileSystem())
    for each in batches:
        log.append_as_follower(memoryview(each))
    return log


def found_at(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    """Time and offset. What is too large for the loop is searched as in a thread."""
    searched: dict[int, TimestampOffset | None] = {}
    while True:
        try:
            found = find_timestamp(
                log.segments,
                timestamp_ms,
                from_offset=0,
                upto_offset=log.next_offset,
                searched=searched,
            )
        except LargeBatch as large:
            searched[large.base_offset] = large.search()
        else:
            return found and (found.timestamp_ms, found.offset)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_lookup_goes_on_behind_records_that_cannot_be_read(
    codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(stored(0, 10), unreadable(1, 20, codec=codec), stored(2, 30))
    with caplog.at_level(logging.WARNING):
        assert found_at(log, 15) == (30, 2)
    assert "skips the batch at offset 1" in caplog.text
    assert found_at(log, 10) == (10, 0)
    assert found_at(log, 25) == (30, 2)


def test_unreadable_records_at_the_end_are_no_answer() -> None:
    log = log_of(stored(0, 10), unreadable(1, 20))
    assert found_at(log, 5) == (10, 0)
    assert found_at(log, 15) is None


def test_unreadable_records_alone_are_no_answer() -> None:
    assert found_at(log_of(unreadable(0, 20)), 5) is None


def test_a_large_unreadable_batch_is_skipped_as_a_small_one_is() -> None:
    packed = bytes(batch(1, value=bytes(_LARGE_BYTES), codec=Codec.GZIP)[_HEADER_BYTES:])
    # The check at its end does not fit what it unpacks to.
    damaged = packed[:-8] + b"\xff" * 8
    log = log_of(unreadable(0, 20, codec=Codec.GZIP, garbage=damaged), stored(1, 30))
    assert found_at(log, 15) == (30, 1)


def test_a_lookup_over_many_unreadable_batches_ends() -> None:
    log = log_of(*(unreadable(offset, 20) for offset in range(100)), stored(100, 30))
    found = found_at(log, 15)
    assert found is not None
    # Not at the first ones, and no reader misses a record from there on.
    assert 0 < found[1] <= 100


def test_the_largest_timestamp_is_not_given_for_records_that_cannot_be_read() -> None:
    log = log_of(stored(0, 10), unreadable(1, 90), stored(2, 30))
    assert find_max_timestamp(log.segments, from_offset=0, upto_offset=3) is None
    log.append_as_follower(memoryview(stored(3, 100)))
    found = find_max_timestamp(log.segments, from_offset=0, upto_offset=4)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (100, 3)


def lying(offset: int, timestamp_ms: int) -> bytearray:
    """The header promises a later time than its record has; nodes used to store that."""
    data = stored(offset, timestamp_ms)
    data[35:43] = (2**63 - 1).to_bytes(8, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of headers that lookups read."""
    positions: list[int] = []
    headers = Segment.headers

    def noted(*arguments: int) -> Iterator[tuple[int, BatchView]]:
        for position, header in headers(*arguments):  # type: ignore[arg-type]
            positions.append(position)
            yield position, header

    monkeypatch.setattr(Segment, "headers", noted)
    return positions


def test_headers_with_a_false_time_cost_one_scan_together(passed: list[int]) -> None:
    lies = range(0, 3000, 200)
    log = log_of(*(lying(n, 10) if n in lies else stored(n, 10) for n in range(3000)))
    passed.clear()
    assert found_at(log, 15) is None
    # Each pause goes on at the last header that was read; some lead to their batch.
    assert len(set(passed)) == 3000
    assert len(passed) < 3500


def test_a_long_scan_pauses(passed: list[int]) -> None:
    log = log_of(*(stored(n, 10) for n in range(2000)), stored(2000, 30))
    log.segments.active.max_timestamp_ms = 30
    wanted = {"from_offset": 0, "upto_offset": log.next_offset}
    searched: dict[int, TimestampOffset | None] = {}
    steps = []
    while True:
        passed.clear()
        try:
            found = find_timestamp(log.segments, 20, searched=searched, **wanted)
        except LargeBatch as pause:
            steps.append(len(passed))
            searched[pause.base_offset] = pause.search()
        else:
            break
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (30, 2000)
    assert len(steps) >= 3
    assert max(steps) <= 600
    # Who cannot wait gets the same at once.
    assert find_timestamp(log.segments, 20, **wanted) == found


def test_a_record_behind_a_false_time_is_found() -> None:
    log = log_of(lying(0, 10), *(stored(n, 10) for n in range(1, 1200)), stored(1200, 30))
    assert found_at(log, 20) == (30, 1200)
    assert found_at(log, 5) == (10, 0)


def test_a_produced_false_time_is_not_stored_and_the_index_goes_on() -> None:
    log = open_log(MemoryFileSystem(), make_log_config(index_interval_bytes=100))
    for number in range(50):
        data = lying(0, NOW_MS + number) if number == 3 else stored(0, NOW_MS + number)
        append(log, data)
    segment = log.segments.active
    assert segment.read_max_timestamp() == NOW_MS + 49
    last = segment.times.last()
    assert last is not None
    assert NOW_MS + 40 < last[0] < NOW_MS + 50
    found = find_max_timestamp(log.segments, from_offset=0, upto_offset=50)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS + 49, 49)
