"""Where to start reading, as commands and the console take it: `consume -o`, `group reset --to`.

`beginning`, `end`, `N` (an offset), `-N` (the last N of each partition), `@TIME` (the first
record at or after a time: `@2026-01-31`, `@2026-01-31T12:00:00Z`, `@1767225600000`, `@-1h`).
A range is two of them: `100:200`, `@-2h:@-1h`, `beginning:end`; its end is not included.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# The last moment a timestamp of 64 bits can name.
_LATEST_MS = 2**63 - 1
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class FromBeginning:
    pass


@dataclass(frozen=True, slots=True)
class FromEnd:
    """`back` records before the end; 0 is the end itself."""

    back: int


@dataclass(frozen=True, slots=True)
class FromOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class FromTime:
    timestamp_ms: int


Start = FromBeginning | FromEnd | FromOffset | FromTime


@dataclass(frozen=True, slots=True)
class Range:
    start: Start
    # None: no end, or where the command says.
    end: Start | None


def parse_range(text: str, *, now: datetime) -> Range:
    """A start, or a start and an end; `ValueError` with a reason for anything else."""
    try:
        return Range(parse_start(text, now=now), None)
    except ValueError as wrong:
        # Times have colons of their own, so every colon may be the one between both.
        for colon in re.finditer(":", text):
            found = _parse_both(text[: colon.start()], text[colon.end() :], now)
            if found is not None:
                return found
        raise ValueError(f"{wrong}; a range is two of these with a : between") from None


def _parse_both(start: str, end: str, now: datetime) -> Range | None:
    try:
        return Range(parse_start(start or "beginning", now=now), parse_start(end, now=now))
    except ValueError:
        return None


def parse_start(text: str, *, now: datetime) -> Start:
    """The start that `text` names; `ValueError` with a reason if it names none."""
    if text in ("beginning", "start", "oldest"):
        return FromBeginning()
    if text in ("end", "newest"):
        return FromEnd(back=0)
    if re.fullmatch(r"\d+", text):
        return FromOffset(int(text))
    if re.fullmatch(r"-\d+", text):
        return FromEnd(back=-int(text))
    if text.startswith("@"):
        return FromTime(_parse_time(text[1:], now))
    raise ValueError(f"{text!r} is not beginning, end, N, -N or @TIME")


def offset_of(start: Start, *, first: int, end: int, at: int) -> int:
    """The offset in a partition that holds `first` up to `end`.

    `at` is that of the first record not older than the time of a `FromTime`, or -1 without one.
    Outside the partition a client would jump to its other end; this stays at the near one."""
    match start:
        case FromBeginning():
            return first
        case FromEnd(back=back):
            return max(first, end - back)
        case FromOffset(offset=offset):
            return min(max(offset, first), end)
        case FromTime():
            return at if at >= 0 else end


def _parse_time(text: str, now: datetime) -> int:
    if text == "now":
        return _to_ms(now)
    if re.fullmatch(r"\d{11,}", text):
        return min(int(text), _LATEST_MS)
    relative = re.fullmatch(r"-(\d+)([smhd])", text)
    if relative:
        try:
            return _to_ms(now - timedelta(**{_UNITS[relative[2]]: int(relative[1])}))
        except OverflowError:
            # Before the first year: in any case before every record.
            return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: use 2026-01-31, 2026-01-31T12:00:00Z, -1h, or milliseconds"
        ) from None
    # Log times are compared across machines, so a time without a zone is UTC.
    return _to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _to_ms(moment: datetime) -> int:
    # Kafka's negative timestamps have special meanings.
    return max((moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1), 0)
