"""Instants as Spark's `to_json` writes them: results of both have the same keys."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Many results have times of the same seconds.
_SECONDS_KEPT: Final = 1 << 16


def json_time(at_us: int, zone: ZoneInfo) -> str:
    """`2026-09-21T13:59:00.000+02:00`, with `Z` for UTC."""
    second, micros = divmod(at_us, 1_000_000)
    clock, offset = _second(second, zone)
    return f"{clock}.{micros // 1000:03}{offset}"


@lru_cache(_SECONDS_KEPT)
def _second(second: int, zone: ZoneInfo) -> tuple[str, str]:
    at = _EPOCH + timedelta(seconds=second)
    try:
        at = at.astimezone(zone)
    except OverflowError:
        # In the first or last hours of all years; the same instant in UTC.
        pass
    text = at.isoformat()
    # Offsets of long ago have seconds, which nobody reads.
    clock, offset = text[:19], text[19:25]
    return clock, "Z" if offset == "+00:00" else offset
