"""Where to start reading: the `-o` option of `millstream consume`.

`beginning`, `end`, `N` (an offset), `-N` (the last N of each partition), `@TIME` (the first
record at or after a time: `@2026-01-31`, `@2026-01-31T12:00:00Z`, `@1767225600000`, `@-1h`).
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
