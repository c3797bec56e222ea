"""Lines by patterns in plain Python; `_patterns.pxd` does the same with bytes in place."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.lines import _times_pure
from millstream.lines._times_pure import Time
from millstream.lines.layouts import MONTHS
from millstream.lines.line_patterns import StepKind, Steps

Pairs = list[tuple[str, str | None]]

_SPACES: Final = b" \t\n\v\f\r"
_BLANKS: Final = b" \t"
_ISO: Final = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"
)
_ZONE: Final = re.compile(rb"Z|([+-])(\d\d)(?::?(\d\d))?")
_ZONE_NAME: Final = re.compile(rb"[A-Z]{1,5}")
_UTC_NAMES: Final = (b"Z", b"UTC", b"GMT")
_SINCE_1970: Final = re.compile(rb"\d{1,19}(?:\.\d{1,9})?")
_DIGITS_MAX: Final = {"Y": 4, "f": 9}
# Far from any time, so that a day more stays within 64 bits.
_FAR_US: Final = 1 << 60
_HALF_A_DAY_US: Final = 12 * 3600 * 1_000_000


@dataclass(slots=True)
class _Clock:
    """What a time's format has read so far; -1 says that it is not there."""

    year: int = -1
    month: int = -1
    day: int = -1
    hour: int = 0
    minute: int = 0
    second: int = 0
    micros: int = 0
    is_pm: bool = False
    is_half_day: bool = False
    is_utc: bool = False
    zone_us: int = 0
    since_1970: Time | None = None


def read_line(
    patterns: Sequence[Steps], line: bytes, record_us: int | None
) -> tuple[Pairs, Time] | None:
    """The fields and the time by the first pattern that the whole line fits."""
    for steps in patterns:
        if (found := _read(steps, line, record_us)) is not None:
            return found
    return None


def _read(steps: Steps, line: bytes, record_us: int | None) -> tuple[Pairs, Time] | None:
    pairs: Pairs = []
    time: Time | None = None
    position: int | None = 0
    # The literal behind an open field is found together with the field's end.
    is_literal_read = False
    for number, step in enumerate(steps):
        assert position is not None
        start = position
        if step.kind is StepKind.LITERAL:
            if not is_literal_read:
                position = _literal_end(step.text, line, start)
            is_literal_read = False
            if position is None:
                return None
            continue
        end: int | None
        if step.kind is StepKind.TIME and step.text:
            time, end = _read_time(step.text, line, start, record_us)
            position = end
        elif step.kind is StepKind.TIME and (iso := _ISO.match(line, start)):
            end = position = iso.end()
            time = _times_pure.numeric_or_iso_time(iso[0].decode())
        else:
            end, position = _field_end(steps, number, line, start)
            is_literal_read = True
            if step.kind is StepKind.TIME and end is not None:
                time = _times_pure.numeric_or_iso_time(line[start:end].decode())
        if end is None or position is None or (step.kind is StepKind.TIME and time is None):
            return None
        if step.name:
            pairs.append((step.name, line[start:end].decode()))
    return (pairs, time) if position == len(line) and time is not None else None


def _literal_end(literal: bytes, line: bytes, position: int) -> int | None:
    """Behind the literal here; a blank of it is one blank or more."""
    for letter in literal:
        if position >= len(line):
            return None
        if letter in _BLANKS:
            if line[position] not in _BLANKS:
                return None
            position = _skip_blanks(line, position)
        elif line[position] != letter:
            return None
        else:
            position += 1
    return position


def _skip_blanks(line: bytes, position: int) -> int:
    while position < len(line) and line[position] in _BLANKS:
        position += 1
    return position


def _field_end(
    steps: Steps, number: int, line: bytes, position: int
) -> tuple[int | None, int | None]:
    """Where a field ends, and where the literal behind it does."""
    if number + 1 == len(steps):
        return len(line), len(line)
    literal = steps[number + 1].text
    is_last = number + 2 == len(steps)
    is_wide = steps[number].kind is StepKind.WIDE
    while position <= len(line):
        end = _literal_end(literal, line, position)
        if end is not None and (not is_last or end == len(line)):
            return position, end
        if position == len(line):
            break
        if not is_wide and line[position] in _SPACES:
            end = _literal_end(literal, line, _skip_blanks(line, position))
            is_found = end is not None and (not is_last or end == len(line))
            return (position, end) if is_found else (None, None)
        # A literal that begins with a blank is nowhere in blanks where it is not at their start.
        is_skipped = literal[0] in _BLANKS and line[position] in _BLANKS
        position = _skip_blanks(line, position) if is_skipped else position + 1
    return None, None


# -- times -----------------------------------------------------------------------------------


def _read_time(
    text: bytes, line: bytes, position: int, record_us: int | None
) -> tuple[Time | None, int | None]:
    clock = _Clock()
    at = 0
    found: int | None = position
    while at < len(text) and found is not None:
        if text[at : at + 1] == b"%":
            found = _read_directive(chr(text[at + 1]), clock, line, found)
            at += 2
        else:
            found = _literal_end(text[at : at + 1], line, found)
            at += 1
    return (None, None) if found is None else (_time(clock, record_us), found)


def _read_directive(letter: str, clock: _Clock, line: bytes, position: int) -> int | None:
    match letter:
        case "Y" | "y" | "m" | "d" | "e" | "H" | "I" | "M" | "S" | "f":
            return _read_number(letter, clock, line, position)
        case "b" | "a" | "p" | "%":
            return _read_name(letter, clock, line, position)
        case "s":
            digits = _SINCE_1970.match(line, position)
            if digits is None:
                return None
            clock.since_1970 = _times_pure.numeric_or_iso_time(digits[0].decode())
            return digits.end() if clock.since_1970 else None
        case _:
            return _read_zone(letter, clock, line, position)


def _read_number(letter: str, clock: _Clock, line: bytes, position: int) -> int | None:
    end = position
    while end < len(line) and end - position < _DIGITS_MAX.get(letter, 2) and 48 <= line[end] <= 57:
        end += 1
    digits = line[position:end].decode()
    if not digits or (letter == "Y" and len(digits) < 4):
        return None
    match letter:
        case "Y":
            clock.year = int(digits)
        case "y":
            clock.year = 2000 + int(digits)
        case "m":
            clock.month = int(digits)
        case "d" | "e":
            clock.day = int(digits)
        case "H" | "I":
            clock.hour = int(digits)
            clock.is_half_day = letter == "I"
        case "M":
            clock.minute = int(digits)
        case "S":
            clock.second = int(digits)
        case _:
            clock.micros = int(digits[:6].ljust(6, "0"))
    return end


def _read_name(letter: str, clock: _Clock, line: bytes, position: int) -> int | None:
    size = {"b": 3, "a": 3, "p": 2, "%": 1}[letter]
    name = line[position : position + size].decode("latin-1")
    match letter:
        case "b":
            if name not in MONTHS:
                return None
            clock.month = MONTHS.index(name) + 1
        case "a":
            if not re.fullmatch("[A-Z][a-z]{2}", name):
                return None
        case "p":
            if name.upper() not in ("AM", "PM"):
                return None
            clock.is_pm = name.upper() == "PM"
        case _:
            if name != "%":
                return None
    return position + size


def _read_zone(letter: str, clock: _Clock, line: bytes, position: int) -> int | None:
    if letter == "Z":
        name = _ZONE_NAME.match(line, position)
        if name is None:
            return None
        clock.is_utc = name[0] in _UTC_NAMES
        return name.end()
    found = _ZONE.match(line, position)
    if found is None:
        return None
    clock.is_utc = True
    if found[1]:
        hours, minutes = int(found[2]), int(found[3] or 0)
        if minutes > 59 or hours * 60 + minutes > 18 * 60:
            return None
        shift = (hours * 60 + minutes) * 60 * 1_000_000
        clock.zone_us = -shift if found[1] == b"-" else shift
    return found.end()


def _time(clock: _Clock, record_us: int | None) -> Time | None:
    if clock.since_1970 is not None:
        return clock.since_1970
    if clock.is_half_day:
        if not 1 <= clock.hour <= 12:
            return None
        clock.hour = clock.hour % 12 + (12 if clock.is_pm else 0)
    if clock.year < 0:
        if record_us is None or abs(record_us) > _FAR_US:
            return None
        if clock.month < 0:
            return _nearest_day(clock, record_us)
        clock.year = _times_pure.year_near(clock.month, record_us)
    micros = _times_pure.micros_of(
        _times_pure.day_of(clock.year, clock.month, clock.day) if clock.year <= 9999 else None,
        clock.hour,
        clock.minute,
        clock.second,
    )
    if micros is None:
        return None
    return Time(micros + clock.micros - clock.zone_us, is_local=not clock.is_utc)


def _nearest_day(clock: _Clock, record_us: int) -> Time | None:
    """A clock without a day is of the day that brings it closest to the record."""
    day = record_us // (2 * _HALF_A_DAY_US)
    micros = _times_pure.micros_of(day, clock.hour, clock.minute, clock.second)
    if micros is None:
        return None
    micros += clock.micros - clock.zone_us
    if micros - record_us > _HALF_A_DAY_US:
        micros -= 2 * _HALF_A_DAY_US
    elif record_us - micros > _HALF_A_DAY_US:
        micros += 2 * _HALF_A_DAY_US
    return Time(micros, is_local=not clock.is_utc)
