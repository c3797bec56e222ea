"""Which of the oldest records may be removed: decided from plain values.

Whole segments go, oldest first (`count_expired`): those whose newest record is older than
`retention.ms`, those without which the log still has `retention.bytes`, and those below the log's
start. What all the groups that a topic names have consumed may go too (`consumed_offset`).
"""

from collections.abc import Iterable, Sequence

from millstream.lazy_dataclass import dataclass
from millstream.storage.segment import Segment
from millstream.storage.values import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentAge:
    base_offset: int
    next_offset: int
    size_bytes: int
    # The age counts from here: see `age_timestamp_ms`.
    timestamp_ms: int


def segment_ages(segments: Sequence[Segment], next_offset: int, now_ms: int) -> list[SegmentAge]:
    ages = []
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        timestamp_ms = age_timestamp_ms(
            max_timestamp_ms=segment.read_max_timestamp(),
            modified_ms=segment.modified_ms,
            now_ms=now_ms,
        )
        end_offset = next_offset if is_last else segments[number + 1].base_offset
        ages.append(SegmentAge(segment.base_offset, end_offset, segment.size_bytes, timestamp_ms))
    return ages


def age_timestamp_ms(*, max_timestamp_ms: int, modified_ms: int, now_ms: int) -> int:
    """The start of a segment's age: its newest record, or the file's last change.

    A producer with a wrong clock must not keep a segment for years: a timestamp in the future
    says nothing about age.
    """
    if max_timestamp_ms < 0 or max_timestamp_ms > now_ms:
        return modified_ms
    return max_timestamp_ms


def count_expired(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many segments, from the oldest on, may be removed.

    Never one with uncommitted records, and never an empty last one. If all of them may be
    removed, the caller has to start a new segment first.
    """
    count = 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if segment.next_offset > high_watermark or (is_last and segment.size_bytes == 0):
            break
        is_before_start = segment.next_offset <= log_start_offset and not is_last
        is_too_old = (
            config.is_deleted
            and config.retention_ms >= 0
            and now_ms - segment.timestamp_ms > config.retention_ms
        )
        is_too_much = (
            config.is_deleted and config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        )
        if not (is_before_start or is_too_old or is_too_much):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


def consumed_offset(commits: Iterable[int | None], end_offset: int) -> int | None:
    """Up to where all the groups have consumed a partition, from the commit of each.

    One group without a commit keeps everything: it may still read from the beginning. So
    does a commit beyond the end: it was made for records that are not here now.
    """
    lowest: int | None = None
    for commit in commits:
        if commit is None or commit > end_offset:
            return None
        lowest = commit if lowest is None else min(lowest, commit)
    return lowest
