"""Logs for tests: batches of a given shape, and a log over a file system in memory."""

from dataclasses import replace
from typing import Any

from millstream.broker.node.log_config import log_config
from millstream.config import BrokerConfig
from millstream.model import Codec, TopicPartition
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.records.validation import BatchRules, produced_batch
from millstream.storage.files import DescriptorCache
from millstream.storage.incoming import batch_rules
from millstream.storage.log import Appended, Log, LogConfig
from millstream.storage.lookup import find_timestamp
from millstream.storage.recovery import Circumstances, recover_log
from millstream.storage.segment import Segment
from millstream.storage.values import TimestampOffset
from tests.storage.memory_files import MemoryFileSystem

DIRECTORY = "/t-0"
NOW_MS = 1_700_000_000_000
LOG_PATH = f"{DIRECTORY}/00000000000000000000.log"
INDEX_PATH = f"{DIRECTORY}/00000000000000000000.index"
TIMES_PATH = f"{DIRECTORY}/00000000000000000000.timeindex"
CRASHED = Circumstances(was_stopped_cleanly=False, power_was_cut=False, now_ms=NOW_MS)
CLEAN = Circumstances(was_stopped_cleanly=True, power_was_cut=False, now_ms=NOW_MS)
_DEFAULTS = log_config(BrokerConfig({}), overrides={})


def make_log_config(**changes: Any) -> LogConfig:
    """What the log of a topic without settings gets, except for `changes`."""
    return replace(_DEFAULTS, **changes)


def make_batch_rules(**changes: Any) -> BatchRules:
    """What a topic without settings asks of a batch, except for `changes`."""
    return replace(batch_rules(_DEFAULTS), **changes)


def batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int | None = None,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    key: bytes | None = None,
) -> bytearray:
    """A batch as a client sends it."""
    records = [Record(index, timestamp_ms, key, value) for index in range(count)]
    epoch = producer_epoch if producer_epoch is not None else (0 if producer_id >= 0 else -1)
    return build_batch(
        records,
        base_offset=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def open_log(
    file_system: MemoryFileSystem,
    config: LogConfig | None = None,
    circumstances: Circumstances = CLEAN,
    *,
    reports: list[str] | None = None,
    descriptor_limit: int = 100,
    directory: str = DIRECTORY,
) -> Log:
    if directory not in {f"/{info.name}" for info in file_system.list("/")}:
        file_system.make_directory(directory)
    reported: list[str] = [] if reports is None else reports
    return recover_log(
        directory,
        TopicPartition("t", 0),
        config or make_log_config(),
        circumstances,
        cache=DescriptorCache(file_system, descriptor_limit),
        device=1,
        report=reported.append,
    )


def append(log: Log, data: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> int:
    """The base offset that the batch got."""
    return append_as_leader(
        log, memoryview(data), leader_epoch=leader_epoch, now_ms=now_ms
    ).base_offset


def append_as_leader(log: Log, data: memoryview, *, leader_epoch: int, now_ms: int) -> Appended:
    """As a partition appends what a client sent, in a transaction or not."""
    rules = replace(batch_rules(log.config), is_transactional_allowed=True)
    return log.append(produced_batch(data), rules, leader_epoch=leader_epoch, now_ms=now_ms)


def offset_for_timestamp(
    log: Log, timestamp_ms: int, *, upto_offset: int
) -> TimestampOffset | None:
    return find_timestamp(
        log.segments, timestamp_ms, from_offset=log.log_start_offset, upto_offset=upto_offset
    )


def first_since(
    segment: Segment, timestamp_ms: int, *, from_offset: int = 0
) -> tuple[int, int] | None:
    """Position and size of the first batch with such a record."""
    for position, header in segment.headers_since(timestamp_ms, from_offset=from_offset):
        if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
            return position, header.size_bytes
    return None


def read_all(log: Log) -> bytes:
    """Every byte from the log start to the high watermark."""
    parts = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        found = log.read(
            offset, max_bytes=1 << 20, upto_offset=log.high_watermark, at_least_one=True
        )
        if found is None:
            break
        data = found.read()
        parts.append(data)
        offset = last_offset_in(data) + 1
    return b"".join(parts)


def last_offset_in(data: bytes) -> int:
    from millstream.records.batch import split_batches

    return list(split_batches(memoryview(data)))[-1].last_offset
