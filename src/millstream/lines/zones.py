"""Local times and UTC, whole columns at once, in microseconds.

A local time that a change of clocks skips or repeats is read with the offset from before
the change. Offsets are asked for once per day; for each second only on days that have a change.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Micros = NDArray[np.int64]

_SECOND_US: Final = 1_000_000
_DAY_SECONDS: Final = 86_400
_DAY_US: Final = _DAY_SECONDS * _SECOND_US
_EPOCH: Final = datetime(1970, 1, 1)
# Years 2 to 9998: Python's own times end a year further on either side.
_FIRST_DAY: Final = -718_797
_LAST_DAY: Final = 2_932_530
_UTC_NAMES: Final = ("UTC", "Etc/UTC", "GMT", "Z")


def is_utc(zone: str) -> bool:
    return zone in _UTC_NAMES


def utc_of(local_us: Micros, zone: str) -> Micros:
    return local_us if is_utc(zone) else local_us - _offsets_us(local_us, zone, is_local=True)


def local_of(utc_us: Micros, zone: str) -> Micros:
    return utc_us if is_utc(zone) else utc_us + _offsets_us(utc_us, zone, is_local=False)


def _offsets_us(times_us: Micros, zone: str, *, is_local: bool) -> Micros:
    days, positions = np.unique(
        np.clip(times_us // _DAY_US, _FIRST_DAY, _LAST_DAY), return_inverse=True
    )
    by_day = [_day_offset_us(zone, int(day), is_local) for day in days]
    steady = np.array([each or 0 for each in by_day], np.int64)[positions]
    changing = np.array([each is None for each in by_day], bool)[positions]
    for row in np.flatnonzero(changing):
        second = int(times_us[row]) // _SECOND_US
        steady[row] = _second_offset_us(zone, second, is_local)
    return steady


@lru_cache(4096)
def _day_offset_us(zone: str, day: int, is_local: bool) -> int | None:
    """The offset of the whole day, or None where it has more than one."""
    start = day * _DAY_SECONDS
    found = {
        _second_offset_us(zone, second, is_local)
        for second in range(start, start + _DAY_SECONDS + 1, 3600)
    }
    return found.pop() if len(found) == 1 else None


@lru_cache(8192)
def _second_offset_us(zone: str, second: int, is_local: bool) -> int:
    at = _EPOCH + timedelta(seconds=second)
    if is_local:
        offset = at.replace(tzinfo=ZoneInfo(zone)).utcoffset()
    else:
        offset = at.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)
