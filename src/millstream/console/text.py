"""Numbers, times and strangers' bytes as text that is safe and pleasant to look at."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

# In a table of records; the page of a record shows more.
SHORT_CHARACTERS_MAX: Final = 300
LONG_CHARACTERS_MAX: Final = 64 << 10
_HEX_WIDTH: Final = 16
_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")
# Characters that could hide or reorder other text, each shown as a symbol instead.
_CONTROL_PICTURES: Final[dict[int, int]] = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys(
        (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD
    ),
    0xFEFF: 0xFFFD,
}
_KEEPS_LINES: Final[dict[int, int]] = {**_CONTROL_PICTURES, 0x0A: 0x0A, 0x09: 0x09}


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as text. `kind` is json, text, hex, empty or null; with a schema, its type."""

    text: str
    kind: str
    size_bytes: int
    is_cut: bool = False
    # The schema in a registry that the bytes were decoded with.
    schema_id: int | None = None


def visible(text: str) -> str:
    """The text with symbols for what a browser would not show, or show elsewhere."""
    return text.translate(_CONTROL_PICTURES)


def format_figure(value: float | None) -> str:
    """A measured value: whole numbers in full, others with four digits that count."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 0.001 <= abs(value) < 1e15:
        return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.4g}"


def show(
    data: bytes | None, *, as_: str = "auto", characters_max: int = SHORT_CHARACTERS_MAX
) -> Shown:
    """`as_` is auto, text, json or hex. What is not what was asked for is shown as what it is."""
    if data is None:
        return Shown("", "null", 0)
    if not data:
        return Shown("", "empty", 0)
    if as_ == "hex":
        return _hex(data, characters_max)
    try:
        # No more than can be shown; a cut inside a character is not an error.
        head = data[: characters_max * 4]
        text = head.decode() if len(head) == len(data) else _decode_head(head)
    except UnicodeDecodeError:
        if as_ == "text":
            text = data[: characters_max * 4].decode(errors="replace")
        else:
            return _hex(data, characters_max)
    if as_ in ("auto", "json") and len(data) <= LONG_CHARACTERS_MAX and data[:1] in b'{["':
        pretty = _pretty_json(text, indent=characters_max > SHORT_CHARACTERS_MAX)
        if pretty is not None:
            cut = pretty[:characters_max].translate(_KEEPS_LINES)
            return Shown(cut, "json", len(data), len(pretty) > characters_max)
    is_cut = len(text) > characters_max or len(head) < len(data)
    return Shown(text[:characters_max].translate(_KEEPS_LINES), "text", len(data), is_cut)


def _decode_head(head: bytes) -> str:
    for spare in range(4):
        try:
            return head[: len(head) - spare].decode()
        except UnicodeDecodeError as error:
            if error.start < len(head) - 4:
                raise
    return head.decode()


def _pretty_json(text: str, *, indent: bool) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, indent=2 if indent else None, ensure_ascii=False)


def _hex(data: bytes, characters_max: int) -> Shown:
    if characters_max <= SHORT_CHARACTERS_MAX:
        text = data[: characters_max // 3].hex(" ")
        return Shown(text, "hex", len(data), len(data) > characters_max // 3)
    shown = data[: characters_max // 4]
    return Shown(hex_dump(shown), "hex", len(data), len(shown) < len(data))


def hex_dump(data: bytes, start: int = 0) -> str:
    """Offset, sixteen bytes, and the same as text, a line for each sixteen."""
    lines = []
    for at in range(0, len(data), _HEX_WIDTH):
        row = data[at : at + _HEX_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start + at:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def format_bytes(count: float | None) -> str:
    if count is None or count < 0:
        return "–"
    value = float(count)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def format_count(count: float | None) -> str:
    """Exact below a million, then short."""
    if count is None or count < 0:
        return "–"
    if count < 1_000_000:
        return f"{count:,.0f}"
    for limit, unit in ((1e9, "M"), (1e12, "G")):
        if count < limit:
            return f"{count / limit * 1000:.2f} {unit}"
    return f"{count / 1e12:,.2f} T"


def format_rate(per_second: float | None) -> str:
    if per_second is None or math.isnan(per_second):
        return "–"
    if per_second and per_second < 10:
        return f"{per_second:.1f}/s"
    return f"{format_count(per_second)}/s"


def format_duration(milliseconds: float | None) -> str:
    """The two largest units."""
    if milliseconds is None:
        return "–"
    if milliseconds < 0:
        return "unlimited"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = int(milliseconds // 1000)
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    return " ".join(parts[:2])


def format_time(timestamp_ms: int | None) -> str:
    """In UTC, to the millisecond."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "–"
    try:
        found = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
