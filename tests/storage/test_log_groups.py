"""Batches written together end up as if they had been appended one by one.

Covers storage/log.py.
"""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import KafkaError, NoSpace
from millstream.model import Codec, TimestampType
from millstream.records.batch import split_batches
from millstream.storage.incoming import batch_rules
from millstream.storage.log import Log, LogConfig
from tests.storage.batch_groups import GroupOf
from tests.storage.logs import (
    LOG_PATH,
    NOW_MS,
    append_as_leader,
    batch,
    first_since,
    make_log_config,
    open_log,
)
from tests.storage.memory_files import MemoryFileSystem

EPOCH = 3


def append_one(log: Log, data: bytearray) -> None:
    append_as_leader(log, memoryview(bytearray(data)), leader_epoch=EPOCH, now_ms=NOW_MS)


def append(log: Log, *batches: bytearray, leader_epoch: int = EPOCH) -> int:
    group, rules = GroupOf(*batches), batch_rules(log.config)
    return log.append(group, rules, leader_epoch=leader_epoch, now_ms=NOW_MS).base_offset


def is_refused(log: Log, *batches: bytearray) -> bool:
    """Nothing is written; each batch may be appended by itself."""
    before = log.next_offset
    with pytest.raises(KafkaError):
        append(log, *batches)
    assert log.next_offset == before
    return True


def begun(config: LogConfig | None = None, files: MemoryFileSystem | None = None) -> Log:
    log = open_log(files or MemoryFileSystem(), config)
    append_one(log, batch())
    return log


def timestamps(log: Log) -> list[int]:
    found = log.read(0, max_bytes=1 << 20, upto_offset=log.next_offset, at_least_one=True)
    assert found is not None
    return [view.max_timestamp_ms for view in split_batches(memoryview(found.read()))]


shapes = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-5, 5)), min_size=1, max_size=16),
    min_size=1,
    max_size=12,
)


@given(shapes, st.sampled_from([0, 150, 4096]))
def test_a_group_leaves_what_single_appends_leave(
    groups: list[list[tuple[int, int]]], interval: int
) -> None:
    config = make_log_config(index_interval_bytes=interval)
    files, other_files = MemoryFileSystem(), MemoryFileSystem()
    together, single = begun(config, files), begun(config, other_files)
    for group in groups:
        batches = [batch(count, timestamp_ms=NOW_MS + at) for count, at in group]
        base_offset = single.next_offset
        for one in batches:
            append_one(single, one)
        assert append(together, *batches) == base_offset
    assert files.data(LOG_PATH) == other_files.data(LOG_PATH)
    for name in ("next_offset", "high_watermark", "synced_offset"):
        assert getattr(together, name) == getattr(single, name)
    assert together.segments.size_bytes == single.segments.size_bytes
    segment, other = together.segments[-1], single.segments[-1]
    assert segment.max_timestamp_ms == other.max_timestamp_ms
    assert segment.max_timestamp_offset == other.max_timestamp_offset
    # Found by the recent batches, then by the index alone.
    for _ in range(2):
        for offset in range(together.next_offset):
            assert segment.find(offset) == other.find(offset)
        for at in range(-6, 7):
            assert first_since(segment, NOW_MS + at) == first_since(other, NOW_MS + at)
        segment.forget_recent()
        other.forget_recent()


def test_a_group_gets_one_entry_in_the_offset_index() -> None:
    log = begun(make_log_config(index_interval_bytes=50))
    segment = log.segments[-1]
    assert append(log, *[batch()] * 8) == 1
    assert append(log, *[batch()] * 8) == 9
    assert segment.index_entries == 2
    assert segment.index.lookup(100) == (9, segment.find(9)[0])  # type: ignore[index]


def test_a_sync_takes_a_group_along() -> None:
    log = begun()
    append(log, batch(), batch())
    ticket = log.begin_sync()
    assert ticket is not None
    log.unsynced.end_sync(ticket)
    assert log.synced_offset == 3


@pytest.mark.parametrize(
    "config",
    [
        make_log_config(compression_type=Codec.LZ4),
        make_log_config(timestamp_type=TimestampType.LOG_APPEND_TIME),
        make_log_config(timestamp_before_max_ms=1000),
        make_log_config(timestamp_after_max_ms=-1),
        make_log_config(max_message_bytes=len(batch()) - 1),
        make_log_config(is_compacted=True),
    ],
)
def test_a_topic_that_asks_for_more_gets_its_batches_one_by_one(config: LogConfig) -> None:
    log = begun()
    log.update_config(config)
    assert is_refused(log, batch(), batch())
    assert log.next_offset == 1


def test_only_a_segment_with_room_takes_a_group() -> None:
    empty = open_log(MemoryFileSystem())
    assert is_refused(empty, batch())
    size = len(batch())
    log = begun(make_log_config(segment_bytes=3 * size))
    assert is_refused(log, *[batch()] * 3)
    assert append(log, *[batch()] * 2) == 1
    assert is_refused(log, batch())
    log.update_config(replace(log.config, segment_bytes=1 << 20, segment_ms=10))
    assert append(log, batch(value=bytes(10_000))) == 3
    assert is_refused(log, batch(timestamp_ms=NOW_MS + 11))
    assert log.next_offset == 4


def test_a_new_leader_epoch_is_written_down_with_a_group() -> None:
    log = begun()
    assert append(log, batch(), leader_epoch=EPOCH + 1) == 1
    assert log.epochs.latest == EPOCH + 1
    assert log.epochs.epoch_at(1) == EPOCH + 1


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    files = MemoryFileSystem()
    log = begun(files=files)
    before = bytes(files.data(LOG_PATH))
    files.free_bytes = 100
    with pytest.raises(NoSpace):
        append(log, *[batch()] * 4)
    files.free_bytes = None
    assert files.data(LOG_PATH) == before
    assert (log.next_offset, log.segments.size_bytes) == (1, len(before))
    assert append(log, batch(timestamp_ms=NOW_MS + 1)) == 1
    assert timestamps(log) == [NOW_MS, NOW_MS + 1]


def test_every_batch_says_where_it_is() -> None:
    log = begun()
    append(log, batch(2), batch(3))
    found = log.read(1, max_bytes=1 << 20, upto_offset=6, at_least_one=True)
    assert found is not None
    data = memoryview(found.read())
    stamps = [(v.base_offset, v.partition_leader_epoch) for v in split_batches(data)]
    assert stamps == [(1, EPOCH), (3, EPOCH)]
    assert all(view.crc_is_valid() for view in split_batches(data))
    assert struct.unpack_from(">q", data)[0] == 1
