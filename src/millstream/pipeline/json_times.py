"""Instants as Spark's `to_json` writes them: results of both have the same keys."""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def json_time(at_us: int, zone: ZoneInfo) -> str:
    """`2026-09-21T13:59:00.000+02:00`, with `Z` for UTC."""
    at = _EPOCH + timedelta(microseconds=at_us)
    try:
        at = at.astimezone(zone)
    except OverflowError:
        # In the first or last hours of all years; the same instant in UTC.
        pass
    text = at.isoformat(timespec="milliseconds")
    # Offsets of long ago have seconds, which nobody reads.
    clock, offset = text[:23], text[23:29]
    return clock + ("Z" if offset == "+00:00" else offset)
