"""When a segment is full: by its size, its index or its age. A decision at every append."""

from typing import Final
from zlib import crc32

from millstream.storage.segment import RELATIVE_OFFSET_MAX, Segment
from millstream.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from millstream.storage.values import LogConfig

# As small as `segment.bytes` may be. A smaller segment is not closed because of its index, and not
# sooner than this after it was begun: limits and times are the client's choice, and each append
# could begin a segment.
TINY_BYTES: Final = 10_000
TINY_MS_MIN: Final = 1_000


def has_room(
    segment: Segment,
    config: LogConfig,
    *,
    size_bytes: int,
    timestamp_ms: int,
    last_offset: int,
    now_ms: int,
) -> bool:
    """Whether an append with this size, newest timestamp and last offset fits the segment.

    As in Kafka the age of a segment is counted in the time of its records, from the first
    batch; by the clock only if they have none. An empty segment accepts anything that its
    offsets can reach.
    """
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return False
    size = segment.file.size_bytes
    if size == 0:
        return True
    if size + size_bytes > config.segment_bytes:
        return False
    if size < TINY_BYTES:
        # Not if the clock was set back.
        if 0 <= now_ms - segment.created_ms < TINY_MS_MIN:
            return True
    # Time entries are the larger ones and never more than offset entries.
    elif segment.index_entries >= config.segment_index_bytes // TIME_ENTRY_BYTES - 1:
        return False
    first_ms = segment.first_timestamp_ms
    if first_ms is None:
        first_ms = segment.read_first_timestamp()
    age_ms = timestamp_ms - first_ms if first_ms >= 0 else now_ms - segment.created_ms
    if config.segment_jitter_ms:
        age_ms += _jitter_ms(segment, config)
    return age_ms <= config.segment_ms


def _jitter_ms(segment: Segment, config: LogConfig) -> int:
    """Less than `segment.jitter.ms`, and than `segment.ms`: another number for each segment, and
    the same at each append to it."""
    bound_ms = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(segment.file.path.encode()) % bound_ms if bound_ms > 0 else 0
