"""The decisions of compaction: how dirty a partition is, what is merged, what is removed.

Decisions over plain values, with Kafka's rules. A log is *clean* up to the offset that the
last round reached, and *dirty* from there to the first segment that must not be touched: the
active one, one with undecided transactions, one that is too young. A round collects the newest
offset of every key in the dirty part and rewrites everything before its end.

`compaction_plan` turns a log into these values, `compaction_round` reads and writes the files,
`segment_swap` puts them in place, and the log cleaner (`broker.upkeep.cleaner`) decides when.
The loops over records are in `records.columns`.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from millstream.lazy_dataclass import dataclass
from millstream.records.batch import DELETE_HORIZON_MASK, BatchView
from millstream.records.control import ControlType, read_end_marker
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.segment import RELATIVE_OFFSET_MAX
from millstream.storage.values import INT64_MAX, LogConfig


@dataclass(frozen=True, slots=True)
class Span:
    """What the decisions see of a segment."""

    base_offset: int
    # The base offset of the next segment.
    next_offset: int
    size_bytes: int
    index_bytes: int = 0
    # Of the largest, and of the first batch; -1 if not needed.
    max_timestamp_ms: int = -1
    first_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class Dirtiness:
    first_dirty_offset: int
    # A segment's base offset: a round never ends inside a segment that it must not touch.
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    # Records have waited longer than max.compaction.lag.ms.
    is_overdue: bool

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0


def dirtiness(
    spans: Sequence[Span],
    config: LogConfig,
    *,
    cleaned_offset: int | None,
    log_start_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Dirtiness:
    """`spans` are all segments, the active one last; `cleaned_offset` is where the last
    round ended, None if there was none."""
    active = spans[-1]
    first_dirty = log_start_offset
    # A checkpoint beyond the log belongs to an older partition with the same name.
    if cleaned_offset is not None and log_start_offset <= cleaned_offset <= active.next_offset:
        first_dirty = cleaned_offset
    limit = min(last_stable_offset, active.base_offset)
    if config.compaction_lag_min_ms > 0:
        youngest_ms = now_ms - config.compaction_lag_min_ms
        for span in spans[:-1]:
            if span.next_offset > first_dirty and span.max_timestamp_ms > youngest_ms:
                limit = min(limit, span.base_offset)
                break
    # Whole segments only: nothing of the one that holds the limit.
    uncleanable = next(
        (span.base_offset for span in spans if span.next_offset > limit), active.base_offset
    )
    uncleanable = max(uncleanable, spans[0].base_offset)
    dirty = [
        span for span in spans if span.next_offset > first_dirty and span.base_offset < uncleanable
    ]
    dirty_bytes = sum(span.size_bytes for span in dirty)
    return Dirtiness(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=uncleanable,
        clean_bytes=sum(span.size_bytes for span in spans if span.next_offset <= first_dirty),
        dirty_bytes=dirty_bytes,
        is_overdue=dirty_bytes > 0 and _is_overdue(dirty, config, now_ms),
    )


def _is_overdue(dirty: Sequence[Span], config: LogConfig, now_ms: int) -> bool:
    if config.compaction_lag_max_ms >= INT64_MAX:
        return False
    oldest_ms = min(
        (span.first_timestamp_ms for span in dirty if span.first_timestamp_ms > 0), default=now_ms
    )
    return oldest_ms < now_ms - config.compaction_lag_max_ms


def is_due(found: Dirtiness, config: LogConfig) -> bool:
    """Whether the cleaner should compact this partition without a request."""
    if found.dirty_bytes == 0:
        return False
    return found.is_overdue or found.ratio > config.cleanable_ratio_min


def group_segments(
    spans: Sequence[Span], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[Span]]:
    """Neighbours that become one segment: together they stay within its limits."""
    groups: list[list[Span]] = []
    size_bytes = index_bytes = 0
    for span in spans:
        group = groups[-1] if groups else None
        if (
            group is not None
            and size_bytes + span.size_bytes <= segment_bytes
            and index_bytes + span.index_bytes <= segment_index_bytes
            and span.next_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            group.append(span)
            size_bytes += span.size_bytes
            index_bytes += span.index_bytes
        else:
            groups.append([span])
            size_bytes, index_bytes = span.size_bytes, span.index_bytes
    return groups


def is_horizon_past(batch: BatchView, now_ms: int) -> bool:
    """Whether the markers of the batch were kept long enough (KIP-534). Tombstones are removed
    record by record, in `records.columns`."""
    return bool(batch.attributes & DELETE_HORIZON_MASK) and now_ms >= batch.base_timestamp_ms


class Transactions:
    """Which batches belong to aborted transactions, in a walk from lower to higher offsets.

    A marker may be removed when no record of its transaction is left; an aborted transaction
    stays in the index while its marker is needed.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], *, from_offset: int) -> None:
        relevant = [each for each in aborted if each.last_offset >= from_offset]
        self._coming = deque(sorted(relevant, key=lambda each: each.first_offset))
        # By producer; the second says whether any of its data was seen.
        self._open: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self._still_aborted: list[AbortedTransaction] = []

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            aborted = self._coming.popleft()
            self._open[aborted.producer_id] = (aborted, False)

    def is_aborted(self, batch: BatchView) -> bool:
        """Call for each data batch of the walk."""
        self._advance(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted, _ = self._open.get(batch.producer_id, (None, False))
        # The second condition is for an index entry whose transaction has no marker any more.
        if aborted is None or batch.last_offset > aborted.last_offset:
            self._committed.add(batch.producer_id)
            return False
        self._open[batch.producer_id] = (aborted, True)
        return True

    def is_marker_needless(self, batch: BatchView) -> bool:
        """Call for each control batch of the walk."""
        self._advance(batch.last_offset)
        if batch.record_count == 0:
            return True
        marker = read_end_marker(batch)
        if marker is None:
            return False
        if marker.type is ControlType.COMMIT:
            had_data = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not had_data
        aborted, had_data = self._open.pop(batch.producer_id, (None, False))
        if aborted is not None and had_data:
            self._still_aborted.append(aborted)
        return not had_data

    def take_still_aborted(self) -> list[AbortedTransaction]:
        """The entries for the index of the segment that is being written."""
        taken, self._still_aborted = self._still_aborted, []
        return taken
