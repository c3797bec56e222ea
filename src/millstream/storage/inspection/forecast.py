"""When retention will remove which segment, and by which rule: the policy evaluated ahead."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.storage.retention import SegmentAge
from millstream.storage.values import LogConfig


@dataclass(frozen=True, slots=True)
class Deletion:
    """One segment. `rule` is time, size, start (below the log's first offset) or never."""

    base_offset: int
    size_bytes: int
    rule: str
    # Not before; now or earlier means with the next look. None: never, or not known.
    at_ms: int | None


def forecast(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    bytes_per_second: float,
) -> list[Deletion]:
    """For each segment, oldest first. A segment never goes before those that are older.

    `bytes_per_second` is how fast the log grows: it says when size will be the reason.
    """
    total_bytes = sum(segment.size_bytes for segment in segments)
    found: list[Deletion] = []
    gone_bytes = 0
    earliest_ms: int | None = now_ms
    for number, segment in enumerate(segments):
        gone_bytes += segment.size_bytes
        is_active = number == len(segments) - 1
        rule, at_ms = "never", None
        if segment.next_offset <= log_start_offset and not is_active:
            rule, at_ms = "start", now_ms
        elif earliest_ms is not None and segment.next_offset <= high_watermark:
            by_time = _by_time(segment, config)
            by_size = _by_size(
                config,
                now_ms,
                total_bytes=total_bytes,
                gone_bytes=gone_bytes,
                rate=bytes_per_second,
            )
            rule, at_ms = _sooner(by_time, by_size)
        if at_ms is not None and earliest_ms is not None:
            at_ms = max(at_ms, earliest_ms)
        earliest_ms = at_ms
        found.append(Deletion(segment.base_offset, segment.size_bytes, rule, at_ms))
    return found


def _by_time(segment: SegmentAge, config: LogConfig) -> int | None:
    if not config.is_deleted or config.retention_ms < 0:
        return None
    return segment.timestamp_ms + config.retention_ms


def _by_size(
    config: LogConfig, now_ms: int, *, total_bytes: int, gone_bytes: int, rate: float
) -> int | None:
    """When the log without everything up to this segment will still have retention.bytes."""
    if not config.is_deleted or config.retention_bytes < 0:
        return None
    missing_bytes = config.retention_bytes - (total_bytes - gone_bytes)
    if missing_bytes <= 0:
        return now_ms
    return None if rate <= 0 else now_ms + int(missing_bytes / rate * 1000)


def _sooner(by_time: int | None, by_size: int | None) -> tuple[str, int | None]:
    if by_time is None and by_size is None:
        return "never", None
    if by_size is None or (by_time is not None and by_time <= by_size):
        return "time", by_time
    return "size", by_size
