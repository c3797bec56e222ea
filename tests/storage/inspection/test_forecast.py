from typing import Any

from millstream.storage.inspection.forecast import forecast
from millstream.storage.retention import SegmentAge
from tests.storage.logs import make_log_config

AGES = [
    SegmentAge(0, 10, 100, timestamp_ms=1_000),
    SegmentAge(10, 20, 100, timestamp_ms=2_000),
    SegmentAge(20, 30, 100, timestamp_ms=3_000),
]
NEVER = ("never", None)


def planned(
    high_watermark: int = 30, start: int = 0, rate: float = 0.0, **options: Any
) -> list[tuple[str, int | None]]:
    found = forecast(
        AGES,
        make_log_config(**options),
        now_ms=5_000,
        log_start_offset=start,
        high_watermark=high_watermark,
        bytes_per_second=rate,
    )
    return [(each.rule, each.at_ms) for each in found]


def test_by_time_each_goes_when_its_newest_record_is_old_enough() -> None:
    assert planned(retention_ms=10_000, retention_bytes=-1) == [
        ("time", 11_000),
        ("time", 12_000),
        ("time", 13_000),
    ]


def test_by_size_with_the_rate_of_growth() -> None:
    by_size = {"retention_ms": -1, "retention_bytes": 200}
    assert planned(rate=50.0, **by_size) == [("size", 5_000), ("size", 7_000), ("size", 9_000)]
    # A log that does not grow loses what is too much, and nothing else.
    assert planned(**by_size) == [("size", 5_000), NEVER, NEVER]


def test_the_sooner_rule_counts() -> None:
    assert planned(retention_ms=4_500, retention_bytes=200, rate=1.0)[0] == ("size", 5_000)
    assert planned(retention_ms=4_500, retention_bytes=250, rate=1.0)[0] == ("time", 5_500)


def test_nothing_goes_without_a_rule_or_before_it_is_committed() -> None:
    assert planned(retention_ms=-1, retention_bytes=-1) == [NEVER] * 3
    assert planned(15, retention_ms=1, retention_bytes=-1) == [("time", 5_000), NEVER, NEVER]


def test_what_is_below_the_first_offset_goes_at_once() -> None:
    assert planned(start=10, retention_ms=-1, retention_bytes=-1)[0] == ("start", 5_000)
