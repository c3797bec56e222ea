"""How the made-up site writes its logs: one function per format."""

import json
from datetime import UTC, datetime
from typing import Final

_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def combined(
    time_ms: int,
    *,
    address: str,
    user: str | None,
    request: str,
    status: int,
    size_bytes: int,
    referrer: str,
    agent: str,
) -> bytes:
    at = _utc(time_ms)
    when = f"{at.day:02}/{_MONTHS[at.month - 1]}/{at.year}:{at:%H:%M:%S} +0000"
    return (
        f'{address} - {user or "-"} [{when}] "{request} HTTP/1.1" {status} {size_bytes} '
        f'"{referrer}" "{agent}"'
    ).encode()


def json_line(time_ms: int, **fields: str | int | float) -> bytes:
    return json.dumps({"ts": iso(time_ms), **fields}, separators=(",", ":")).encode()


def logfmt(time_ms: int, **fields: str | int | float) -> bytes:
    words = [f"ts={iso(time_ms)}"]
    for name, value in fields.items():
        text = str(value)
        words.append(f'{name}="{text}"' if " " in text else f"{name}={text}")
    return " ".join(words).encode()


def rfc5424(time_ms: int, *, severity: int, host: str, program: str, text: str) -> bytes:
    return f"<{8 + severity}>1 {iso(time_ms)} {host} {program} 712 - - {text}".encode()


def rfc3164(time_ms: int, *, severity: int, host: str, program: str, text: str) -> bytes:
    at = _utc(time_ms)
    when = f"{_MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S}"
    return f"<{24 + severity}>{when} {host} {program}[712]: {text}".encode()


def free_text(time_ms: int, *, level: str, text: str) -> bytes:
    return f"{iso(time_ms)} {level} {text}".encode()


def iso(time_ms: int) -> str:
    return _utc(time_ms).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03}Z"


def _utc(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms // 1000, UTC)
