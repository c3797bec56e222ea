"""Which segments are too old, too much, or before the log start."""

from millstream.storage.retention import SegmentAge, age_timestamp_ms, count_expired
from millstream.storage.values import LogConfig
from tests.storage.logs import make_log_config

NOW_MS = 1_000_000


def ages(*stamps: int, size_bytes: int = 100) -> list[SegmentAge]:
    return [
        SegmentAge(10 * number, 10 * number + 10, size_bytes, stamp)
        for number, stamp in enumerate(stamps)
    ]


def expired(
    segments: list[SegmentAge],
    config: LogConfig,
    *,
    log_start_offset: int = 0,
    high_watermark: int = 10**9,
) -> int:
    return count_expired(
        segments,
        config,
        now_ms=NOW_MS,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )


def test_old_segments_go_from_the_front_only() -> None:
    segments = ages(NOW_MS - 101, NOW_MS - 101, NOW_MS - 100, NOW_MS - 500)
    assert expired(segments, make_log_config(retention_ms=100)) == 2


def test_no_limit_keeps_everything() -> None:
    assert expired(ages(0, 0, 0), make_log_config(retention_ms=-1, retention_bytes=-1)) == 0


def test_size_keeps_at_least_the_limit() -> None:
    config = make_log_config(retention_ms=-1, retention_bytes=250)
    assert expired(ages(NOW_MS, NOW_MS, NOW_MS, NOW_MS), config) == 1
    assert expired(ages(NOW_MS, NOW_MS), config) == 0


def test_uncommitted_segments_stay() -> None:
    assert expired(ages(0, 0, 0), make_log_config(retention_ms=1), high_watermark=20) == 2


def test_an_empty_last_segment_stays_and_a_full_one_may_go() -> None:
    assert expired(ages(0, size_bytes=0), make_log_config(retention_ms=1)) == 0
    assert expired(ages(0, 0), make_log_config(retention_ms=1)) == 2


def test_segments_before_the_log_start_go_even_on_compacted_topics() -> None:
    config = make_log_config(retention_ms=1, retention_bytes=1, is_deleted=False, is_compacted=True)
    assert expired(ages(0, 0, 0), config, log_start_offset=20) == 2
    assert expired(ages(0, 0, 0), config) == 0


def test_a_timestamp_in_the_future_does_not_keep_a_segment() -> None:
    assert age_timestamp_ms(max_timestamp_ms=NOW_MS + 1, modified_ms=7, now_ms=NOW_MS) == 7
    assert age_timestamp_ms(max_timestamp_ms=-1, modified_ms=7, now_ms=NOW_MS) == 7
    assert age_timestamp_ms(max_timestamp_ms=3, modified_ms=7, now_ms=NOW_MS) == 3
