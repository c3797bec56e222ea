"""Turns a log into the plain values that a round of compaction works on."""

from millstream.lazy_dataclass import dataclass
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.compaction import Dirtiness, Span, dirtiness
from millstream.storage.compaction_round import Round
from millstream.storage.log import Log
from millstream.storage.values import INT64_MAX


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The resources that a round may use."""

    keys_bytes: int
    load_factor: float
    buffer_bytes: int


def measure(log: Log, *, cleaned_offset: int | None, now_ms: int) -> Dirtiness:
    """How dirty a log is; `cleaned_offset` is where the last round ended."""
    return dirtiness(
        _spans(log),
        log.config,
        cleaned_offset=cleaned_offset,
        log_start_offset=log.log_start_offset,
        last_stable_offset=min(log.high_watermark, log.last_stable_offset),
        now_ms=now_ms,
    )


def plan_round(
    log: Log, limits: CompactionLimits, *, cleaned_offset: int | None, now_ms: int
) -> Round | None:
    """The next round, whether or not it is due; None if nothing may be touched."""
    found = measure(log, cleaned_offset=cleaned_offset, now_ms=now_ms)
    spans = tuple(span for span in _spans(log) if span.base_offset < found.first_uncleanable_offset)
    if not spans or found.dirty_bytes == 0:
        return None
    config = log.config
    kept_offsets, kept_markers = [], []
    for producer_id, producer in log.producers.states:
        if producer.batches:
            kept_offsets.append(producer.batches[-1].last_offset)
        else:
            kept_markers.append((producer_id, producer.epoch))
    return Round(
        directory=log.directory,
        spans=spans,
        first_dirty_offset=found.first_dirty_offset,
        aborted=tuple(_aborted(log)),
        kept_offsets=tuple(kept_offsets),
        kept_markers=tuple(kept_markers),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        keys_bytes=limits.keys_bytes,
        load_factor=limits.load_factor,
        buffer_bytes=limits.buffer_bytes,
    )


def _spans(log: Log) -> list[Span]:
    config = log.config
    asks_for_newest = config.compaction_lag_min_ms > 0
    asks_for_first = config.compaction_lag_max_ms < INT64_MAX
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.next_offset]
    return [
        Span(
            base_offset=segment.base_offset,
            next_offset=end,
            size_bytes=segment.size_bytes,
            index_bytes=max(
                segment.index.entries.file.size_bytes, segment.times.entries.file.size_bytes
            ),
            max_timestamp_ms=segment.read_max_timestamp() if asks_for_newest else -1,
            first_timestamp_ms=segment.read_first_timestamp() if asks_for_first else -1,
        )
        for segment, end in zip(log.segments, ends, strict=True)
    ]


def _aborted(log: Log) -> list[AbortedTransaction]:
    """From all segments: a transaction may end long after the part that is compacted."""
    return [aborted for segment in log.segments for aborted in segment.aborted]
