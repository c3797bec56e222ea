"""Compaction of a data directory that no node is using.

Takes the directory's lock, so that no node can start in the meantime, and brings every
compacted topic, or one partition, to the state that a running node's cleaner would reach.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from millstream.broker.node.log_config import log_config
from millstream.clock import Clock
from millstream.cluster.metadata import load_image
from millstream.cluster.state import ClusterImage
from millstream.cluster.stores.embedded import FILE_NAME, open_embedded_store
from millstream.config import BrokerConfig
from millstream.errors import StartError
from millstream.model import TopicPartition
from millstream.storage import layout
from millstream.storage.checkpoints import read_offsets, write_offsets
from millstream.storage.compaction_plan import CompactionLimits, measure, plan_round
from millstream.storage.compaction_round import CleanedSegment, compact_segments
from millstream.storage.files import OsFileSystem
from millstream.storage.log import Log
from millstream.storage.meta import stored_node_id
from millstream.storage.segment_swap import begin_swap, finish_swap, replaced_segments
from millstream.storage.store import LogStore
from millstream.storage.values import LogConfig


@dataclass(slots=True)
class Outcome:
    """What compaction did to one partition."""

    partition: TopicPartition
    dirty_ratio: float
    bytes_before: int
    bytes_after: int
    records_before: int = 0
    records_after: int = 0
    keys: int = 0
    elapsed_ms: int = 0


def compact_directory(
    data_dir: Path,
    config: BrokerConfig,
    clock: Clock,
    *,
    only: TopicPartition | None,
    report: Callable[[str], None],
) -> Iterator[Outcome]:
    """One partition after the other. Raises StartError, CannotCompact and OSError."""
    if not (data_dir / FILE_NAME).exists():
        raise StartError(f"{data_dir} is not a data directory of a Millstream node")
    file_system = OsFileSystem()
    node_id = stored_node_id(file_system, str(data_dir)) or config.int("node.id")

    @cache
    def configs() -> dict[str, LogConfig]:
        # Read only when the lock is held: a running node has the database open.
        image = asyncio.run(_read_image(data_dir))
        overrides = image.broker_overrides
        effective = config.with_dynamic(overrides.get(node_id, {}), overrides.get(None, {}))
        return {
            topic.name: log_config(effective, topic.overrides) for topic in image.topics.values()
        }

    store = LogStore.open(
        data_dir,
        file_system=file_system,
        cluster_id=None,
        broker_id=node_id,
        clock_now_ms=clock.now_ms,
        configs=lambda topic: configs().get(topic) or log_config(config, {}),
        report=report,
    )
    is_whole = False
    try:
        path = f"{store.directory}/{layout.CLEANER_OFFSETS_FILE}"
        offsets = read_offsets(file_system, path) or {}
        for log in _chosen(store, only):
            yield _compact(log, config, clock, offsets)
            write_offsets(file_system, path, offsets)
        is_whole = True
    finally:
        # After a failure the next start checks everything anyway.
        store.close(clean=is_whole)


async def _read_image(data_dir: Path) -> ClusterImage:
    store = await open_embedded_store(data_dir)
    try:
        return await load_image(store)
    finally:
        await store.close()


def _chosen(store: LogStore, only: TopicPartition | None) -> list[Log]:
    if only is None:
        return [log for _, log in sorted(store.logs.items()) if log.config.is_compacted]
    log = store.logs.get(only)
    if log is None:
        raise StartError(f"{store.directory} holds no partition {only}")
    if not log.config.is_compacted:
        raise StartError(f"{only.topic} has no compact in its cleanup.policy")
    return [log]


def _compact(
    log: Log, config: BrokerConfig, clock: Clock, offsets: dict[TopicPartition, int]
) -> Outcome:
    began = clock.monotonic()
    where = log.partition
    log.roll(clock.now_ms())
    found = measure(log, cleaned_offset=offsets.get(where), now_ms=clock.now_ms())
    outcome = Outcome(where, found.ratio, log.segments.size_bytes, log.segments.size_bytes)
    limits = CompactionLimits(
        keys_bytes=config.int("log.cleaner.dedupe.buffer.size"),
        load_factor=config.float("log.cleaner.io.buffer.load.factor"),
        buffer_bytes=config.int("log.cleaner.io.buffer.size"),
    )
    while True:
        now_ms = clock.now_ms()
        planned = plan_round(log, limits, cleaned_offset=offsets.get(where), now_ms=now_ms)
        if planned is None:
            break
        # A round reads again what earlier rounds kept; that counts once.
        outcome.records_before -= outcome.records_after
        outcome.records_after = 0
        for cleaned in compact_segments(planned, log.cache.file_system, moved=lambda size: None):
            _put_in_place(log, cleaned, now_ms)
            outcome.records_before += cleaned.records_before
            outcome.records_after += cleaned.records_after
            outcome.keys = max(outcome.keys, cleaned.keys)
            offsets[where] = cleaned.end_offset
    # No reader holds the old files, so they are deleted at once.
    log.segments.sweep(clock.now_ms() + log.config.file_delete_delay_ms)
    outcome.bytes_after = log.segments.size_bytes
    outcome.elapsed_ms = round((clock.monotonic() - began) * 1000)
    return outcome


def _put_in_place(log: Log, cleaned: CleanedSegment, now_ms: int) -> None:
    old = replaced_segments(log, cleaned)
    assert old is not None, "nothing else changes the log"
    begin_swap(log, cleaned)
    log.cache.file_system.sync_directory(log.directory)
    finish_swap(log, cleaned, old, now_ms=now_ms)
    log.cache.file_system.sync_directory(log.directory)
