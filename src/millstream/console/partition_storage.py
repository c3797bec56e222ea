"""One partition of the node in this process, from inside: what no protocol says.

Runs on the node's loop, so each part is bounded: some index pages, a few hundred questions to the
kernel, no scan of a whole log.
"""

from dataclasses import dataclass
from typing import Final

from millstream.broker.upkeep.cleaner import Cleaner
from millstream.console.console import NotFound
from millstream.console.waiting_requests import WaitingRequests, waiting_requests
from millstream.errors import KafkaError
from millstream.replication.group_commit import Durability as GroupDurability
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.storage.compaction_plan import measure
from millstream.storage.inspection.cached_pages import CachedPages, cache_map, cached_pages
from millstream.storage.inspection.forecast import Deletion, forecast
from millstream.storage.log import Log
from millstream.storage.retention import segment_ages
from millstream.storage.segment import Segment

_SEGMENTS_SHOWN: Final = 200
_MAP_PIECES: Final = 128
_TICKS_MAX: Final = 256
_PRODUCERS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class SegmentRow:
    base_offset: int
    next_offset: int
    size_bytes: int
    index_entries: int
    time_entries: int
    max_timestamp_ms: int
    is_active: bool
    # None where the kernel cannot say.
    pages: CachedPages | None
    deletion: Deletion


@dataclass(frozen=True, slots=True)
class IndexTick:
    """An entry as a place in its file, from 0 to 1."""

    offset: int
    position: int
    share: float


@dataclass(frozen=True, slots=True)
class SegmentDetail:
    base_offset: int
    size_bytes: int
    path: str
    cache: list[CachedPages]
    ticks: list[IndexTick]
    index_interval_bytes: int
    # Bytes between entries, on average.
    measured_interval_bytes: int


@dataclass(frozen=True, slots=True)
class Durability:
    """Offsets, and what a power cut at this moment would take."""

    log_start_offset: int
    synced_offset: int
    last_stable_offset: int
    high_watermark: int
    next_offset: int
    unsynced_records: int
    unsynced_bytes: int
    # Other replicas that have everything that is committed.
    other_replicas: int


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    node_id: int
    is_leader: bool
    is_in_sync: bool
    next_offset: int | None
    lag: int | None
    caught_up_ms_ago: int | None


@dataclass(frozen=True, slots=True)
class Replication:
    role: str
    leader_epoch: int
    min_isr: int
    rows: list[ReplicaRow]
    # What a produce with acks=all would get now.
    acks_all: str
    # The leader epochs and where each began.
    epochs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Compaction:
    dirty_ratio: float
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    min_ratio: float
    cleaned_offset: int | None
    state: str
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@dataclass(frozen=True, slots=True)
class ProducerRow:
    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    # Where its open transaction began; None without one.
    transaction_first_offset: int | None
    holds_back_stable_offset: bool


@dataclass(frozen=True, slots=True)
class PartitionStorage:
    index: int
    directory: str
    segments: list[SegmentRow]
    segment_count: int
    size_bytes: int
    detail: SegmentDetail
    durability: Durability
    replication: Replication
    compaction: Compaction | None
    producers: list[ProducerRow]
    producer_count: int
    waiting: list[WaitingRequests]
    retention_ms: int
    retention_bytes: int


def describe_partition(
    partition: Partition,
    cleaner: Cleaner,
    durability: GroupDurability,
    *,
    now_ms: int,
    monotonic_ms: int,
    segment_base: int | None,
    bytes_per_second: float,
) -> PartitionStorage:
    """`segment_base` chooses the segment to look into; the active one by default."""
    log = partition.log
    chosen = _choose(log, segment_base)
    producers = _producers(partition)
    return PartitionStorage(
        partition.topic_partition.partition,
        log.directory,
        _segments(log, now_ms, bytes_per_second)[-_SEGMENTS_SHOWN:],
        len(log.segments),
        log.segments.size_bytes,
        _detail(chosen),
        _durability(partition),
        _replication(partition, monotonic_ms),
        _compaction(partition, cleaner, now_ms) if log.config.is_compacted else None,
        producers[:_PRODUCERS_SHOWN],
        len(producers),
        waiting_requests(partition, durability),
        log.config.retention_ms,
        log.config.retention_bytes,
    )


def _choose(log: Log, base_offset: int | None) -> Segment:
    if base_offset is None:
        return log.segments.active
    for segment in log.segments:
        if segment.base_offset == base_offset:
            return segment
    raise NotFound(f"There is no segment at offset {base_offset} any more.")


def _segments(log: Log, now_ms: int, bytes_per_second: float) -> list[SegmentRow]:
    ages = segment_ages(log.segments.all, log.next_offset, now_ms)
    deletions = forecast(
        ages,
        log.config,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        bytes_per_second=bytes_per_second,
    )
    rows = []
    for segment, age, deletion in zip(log.segments.all, ages, deletions, strict=True):
        rows.append(
            SegmentRow(
                segment.base_offset,
                age.next_offset,
                segment.size_bytes,
                segment.index.count,
                segment.times.count,
                segment.read_max_timestamp(),
                segment is log.segments.active,
                _pages(segment),
                deletion,
            )
        )
    return rows


def _pages(segment: Segment) -> CachedPages | None:
    descriptor = segment.file.pin()
    try:
        return cached_pages(descriptor, 0, segment.size_bytes)
    finally:
        segment.file.unpin()


def _detail(segment: Segment) -> SegmentDetail:
    size, count = segment.size_bytes, segment.index.count
    descriptor = segment.file.pin()
    try:
        cache = cache_map(descriptor, size, pieces=_MAP_PIECES)
    finally:
        segment.file.unpin()
    step = max(-(-count // _TICKS_MAX), 1)
    ticks = []
    for number in range(0, count, step):
        offset, position = segment.index.get(number)
        ticks.append(IndexTick(offset, position, position / size if size else 0.0))
    return SegmentDetail(
        segment.base_offset,
        size,
        segment.file.path,
        cache,
        ticks,
        segment.index_interval_bytes,
        size // count if count else 0,
    )


def _durability(partition: Partition) -> Durability:
    log = partition.log
    others = 0
    if isinstance(partition, ReplicatedPartition):
        others = max(len(partition.role.isr) - 1, 0)
    return Durability(
        log.log_start_offset,
        log.synced_offset,
        _stable(partition),
        log.high_watermark,
        log.next_offset,
        max(log.next_offset - log.synced_offset, 0),
        _bytes_from(log, log.synced_offset),
        others,
    )


def _stable(partition: Partition) -> int:
    try:
        return partition.last_stable_offset
    except KafkaError:
        return -1


def _bytes_from(log: Log, offset: int) -> int:
    """Bytes of the batches from `offset` on."""
    if offset >= log.next_offset:
        return 0
    number = log.segments.number_of(max(offset, log.segments[0].base_offset))
    found = log.segments[number].find(offset)
    later = sum(segment.size_bytes for segment in log.segments[number + 1 :])
    return later + (0 if found is None else log.segments[number].size_bytes - found[0])


def _replication(partition: Partition, monotonic_ms: int) -> Replication:
    refusal = partition.standing().committed_write
    answer = "succeed" if refusal is None else f"fail with {refusal.error().code.name}"
    epochs = partition.log.epochs.entries[-10:]
    if not isinstance(partition, ReplicatedPartition):
        own = ReplicaRow(partition.leader_id, True, True, partition.log.next_offset, 0, 0)
        return Replication("leader", partition.leader_epoch, 1, [own], answer, epochs)
    leader = partition.leader
    if leader is None:
        role = "follower" if partition.leader_id >= 0 else "no role"
        return Replication(role, partition.leader_epoch, 0, [], answer, epochs)
    leadership = leader.leadership
    end = partition.log.next_offset
    rows = []
    for replica in leadership.replicas:
        follower = leadership.follower(replica)
        if follower is None:
            rows.append(ReplicaRow(replica, True, True, end, 0, 0))
            continue
        known = follower.next_offset if follower.has_fetched else None
        caught_up = monotonic_ms - follower.caught_up_ms if follower.caught_up_ms > 0 else None
        lag = None if known is None else max(end - known, 0)
        is_in_sync = replica in leadership.isr
        rows.append(ReplicaRow(replica, False, is_in_sync, known, lag, caught_up))
    return Replication("leader", partition.leader_epoch, leadership.min_isr, rows, answer, epochs)


def _compaction(partition: Partition, cleaner: Cleaner, now_ms: int) -> Compaction:
    cleaned = cleaner.cleaned_offset(partition)
    found = measure(partition.log, cleaned_offset=cleaned, now_ms=now_ms)
    progress = cleaner.progress(partition)
    return Compaction(
        found.ratio,
        found.clean_bytes,
        found.dirty_bytes,
        found.is_overdue,
        partition.log.config.cleanable_ratio_min,
        cleaned,
        progress.problem or progress.state.name.lower(),
        progress.bytes_before,
        progress.bytes_after,
        progress.records_before,
        progress.records_after,
    )


def _producers(partition: Partition) -> list[ProducerRow]:
    """Those with an open transaction first, the oldest on top."""
    states = partition.log.producers.states
    first_open = states.first_open_offset()
    rows = [
        ProducerRow(
            producer_id,
            one.epoch,
            one.last_sequence,
            one.last_timestamp_ms,
            one.transaction_first_offset if one.transaction_first_offset >= 0 else None,
            first_open is not None and one.transaction_first_offset == first_open,
        )
        for producer_id, one in states
    ]
    rows.sort(
        key=lambda row: (
            row.transaction_first_offset is None,
            row.transaction_first_offset or 0,
            -row.last_timestamp_ms,
        )
    )
    return rows
