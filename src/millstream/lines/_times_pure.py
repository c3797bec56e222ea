"""Times and numbers as lines write them; `_scan.pyx` does the same with bytes.

A time is microseconds since 1970, of UTC or, where the text names no zone, of a clock in a
zone that is not known here.
"""

import re
from dataclasses import dataclass
from typing import Final

from millstream.lines.layouts import MONTHS

_SPACES: Final = " \t\n\v\f\r"
_SECOND_US: Final = 1_000_000
_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_DECIMAL = re.compile(r"\+?([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,6}))?")
_ISO = re.compile(
    r"([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[T ]([0-9]{2}):([0-9]{2})"
    r"(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
    r"(?: ?(?:(Z|UTC|GMT)|([+-])([0-9]{2})(?::?([0-9]{2}))?))?"
)
_BEGINS_ISO = re.compile(r"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[T ][0-9]{2}:[0-9]{2}")
_ACCESS = re.compile(
    r"([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4})(?::(?=.{8} )| (?=.{8}$))"
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?: ([+-])([0-9]{2})([0-9]{2}))?"
)
_SHORT = re.compile("[0-9]{12}")


@dataclass(slots=True)
class Time:
    micros: int
    is_local: bool


def integer_of(text: str | None, *, bits: int) -> int | None:
    found = _INTEGER.fullmatch((text or "").strip(_SPACES))
    if not found:
        return None
    digits = found[2].lstrip("0") or "0"
    if len(digits) > 19:
        return None
    number = -int(digits) if found[1] == "-" else int(digits)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def double_of(text: str | None) -> float | None:
    """A finite number; neither `NaN` nor `Infinity` is one."""
    stripped = (text or "").strip(_SPACES)
    if not _DOUBLE.fullmatch(stripped):
        return None
    number = float(stripped)
    return number if abs(number) != float("inf") else None


def day_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01, or None where there is no such day."""
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= _days_of(year, month)):
        return None
    # Years from March on: the leap day is the last.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _days_of(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def month_of(micros: int) -> tuple[int, int]:
    """The year and the month of a time."""
    days = micros // (86_400 * _SECOND_US) + 719_468
    era, of_era = divmod(days, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    month += 3 if month < 10 else -9
    return year + era * 400 + (month <= 2), month


def micros_of(day: int | None, hour: int, minute: int, second: int) -> int | None:
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    return (((day * 24 + hour) * 60 + minute) * 60 + second) * _SECOND_US


def _zone_us(sign: str, hours: str, minutes: str | None) -> int | None:
    if int(hours) * 60 + int(minutes or 0) > 18 * 60 or int(minutes or 0) > 59:
        return None
    seconds = (int(hours) * 60 + int(minutes or 0)) * 60
    return (-seconds if sign == "-" else seconds) * _SECOND_US


def numeric_or_iso_time(text: str | None) -> Time | None:
    stripped = (text or "").strip(_SPACES)
    return _iso_time(stripped) if _BEGINS_ISO.match(stripped) else _numeric_time(stripped)


def _iso_time(text: str) -> Time | None:
    found = _ISO.fullmatch(text)
    if not found:
        return None
    year, month, day, hour, minute = map(int, found.groups()[:5])
    micros = micros_of(day_of(year, month, day), hour, minute, int(found[6] or 0))
    zone_us = _zone_us(found[9], found[10], found[11]) if found[9] else 0
    if micros is None or zone_us is None:
        return None
    micros += int((found[7] or "")[:6].ljust(6, "0")) - zone_us
    return Time(micros, is_local=not (found[8] or found[9]))


def _numeric_time(text: str) -> Time | None:
    """How large a number of our days is tells its unit, from seconds to nanoseconds."""
    found = _DECIMAL.fullmatch(text)
    if not found or not (found[1] or found[2]):
        return None
    whole, fraction, exponent = found[1], found[2] or "", int(found[3] or 0)
    digits = (whole + fraction).lstrip("0")
    # How many of the digits are before the point.
    point = len(whole) + exponent - (len(whole) + len(fraction) - len(digits))
    if not digits or not 9 <= point <= 19:
        return None
    number = int(digits[:point].ljust(point, "0"))
    nanos = int(digits[point : point + 9].ljust(9, "0"))
    if point <= 11:
        return Time(number * 1_000_000 + nanos // 1_000, is_local=False)
    if point <= 14:
        return Time(number * 1_000 + nanos // 1_000_000, is_local=False)
    if point <= 17:
        return Time(number, is_local=False)
    return Time(number // 1_000, is_local=False) if number < 9 * 10**18 else None


def access_time(text: str | None) -> Time | None:
    """Of `21/Sep/2026:15:59:58 +0200`, or `21/Sep/2026 15:59:58` as Python's servers write it."""
    found = _ACCESS.fullmatch(text or "")
    if not found or found[2] not in MONTHS:
        return None
    day = day_of(int(found[3]), MONTHS.index(found[2]) + 1, int(found[1]))
    micros = micros_of(day, int(found[4]), int(found[5]), int(found[6]))
    if micros is None:
        return None
    if found[7] is None:
        return Time(micros, is_local=True)
    zone_us = _zone_us(found[7], found[8], found[9])
    return None if zone_us is None else Time(micros - zone_us, is_local=False)


def words_time(
    *, year: str | None, month: str, day: str, clock: str, record_us: int | None
) -> Time | None:
    """Month, day and clock; without a year, of the one that brings it closest to the record."""
    if month not in MONTHS:
        return None
    number = MONTHS.index(month) + 1
    if year is None:
        if record_us is None:
            return None
        of_year = year_near(number, record_us)
    else:
        of_year = int(year)
    if of_year > 9999:
        return None
    micros = micros_of(day_of(of_year, number, int(day)), *map(int, clock.split(":")))
    return None if micros is None else Time(micros, is_local=True)


def year_near(month: int, record_us: int) -> int:
    """The year that brings a month closest to the record."""
    recorded_year, recorded_month = month_of(record_us)
    # Half a year off the record is the other side of a New Year.
    far = recorded_month - month
    return recorded_year + (1 if far > 6 else -1 if far < -6 else 0)


def short_time(text: str) -> Time | None:
    """Of `081109 203615` or `17/06/09 20:10:40`, in this century."""
    digits = re.sub("[/: ]", "", text)
    if not _SHORT.fullmatch(digits):
        return None
    year, month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(0, 12, 2))
    micros = micros_of(day_of(2000 + year, month, day), hour, minute, second)
    return None if micros is None else Time(micros, is_local=True)
