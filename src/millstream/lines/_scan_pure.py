"""Lines into columns in plain Python, by regular expressions: what `_scan.pyx` is held against.

Slow, and used only if there was no compiler.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.lines import _json_pure, _patterns_pure, _times_pure
from millstream.lines._times_pure import Time, double_of, integer_of
from millstream.lines.layouts import (
    ALIASES,
    KINDS,
    LEVEL_LETTERS,
    LEVELS,
    LINE_BYTES_MAX,
    SEVERITIES,
)
from millstream.lines.line_patterns import Steps
from millstream.lines.schema import EVENT_SCHEMA, SCANNED

NAME: Final = "pure Python"

Slots = dict[str, str]
Pairs = list[tuple[str, str | None]]

_UNKNOWN: Final = KINDS.index("unknown")
_JSON: Final = KINDS.index("json")
_ACCESS: Final = KINDS.index("access")
_PATTERN: Final = KINDS.index("pattern")
_TEXT: Final = KINDS.index("text")
_TEXTS: Final = tuple(KINDS.index(each) for each in ("errorlog", "shortdate", "labelled"))

_QUOTED: Final = r'[^"\\]*(?:\\.[^"\\]*)*'
_LEVEL: Final = rf"(?P<level>(?i:{'|'.join(sorted(LEVELS, key=len, reverse=True))}))"
_ISO: Final = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"
_FILE: Final = r"\S{1,100}\.log\S{0,60} "
_PROGRAM: Final = r"(?:(?P<program>[^\s:\[]+)(?:\[[^\]]*\])?: ?)?"
_SHORT: Final = r"(?:\d{6} \d{6}|\d\d/\d\d/\d\d \d\d:\d\d:\d\d)"
_WORDS: Final = r"[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d"


def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode(), re.DOTALL)


# How a line of each kind begins, in the order of trying.
_BEGINS: Final = [
    (KINDS.index(kind), _compiled(pattern))
    for kind, pattern in (
        ("json", r"\s*\{"),
        ("rfc5424", r"<\d{1,3}>1 "),
        ("rfc3164", r"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d "),
        (
            "isosyslog",
            r"\d{4}-\d\d-\d\dT(?:\S+ \S+ (?:[^\s:\[]+\[\d+\]|kernel|systemd)"
            r"|\S{8}\.\d{6}[+-]\d\d:\d\d [^\sA-Z]+ [^\s:\[]+): ",
        ),
        ("access", r"\S+ \S+ \S+ \[\d\d/"),
        ("errorlog", r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d"),
        ("shortdate", rf"{_SHORT} "),
        ("labelled", r"\S{1,100} \d{9,10} \d{4}\.\d\d\.\d\d "),
        ("text", rf"(?:{_FILE})?\[?{_ISO}"),
        ("logfmt", r"[\w.@/-]+=\S"),
    )
]

_ACCESS_HEAD: Final = r'(?P<address>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]{20,40})\] "'
_ACCESS_REQUESTS: Final = (
    r'(?P<method>[A-Z]{3,20}) (?P<path>[^ "?]*)(?:\?(?P<query>[^ "]*))?(?: HTTP/[\d.]+)?',
    _QUOTED,
)
_ACCESS_TAILS: Final = (
    rf' "(?P<referrer>{_QUOTED})" "(?P<agent>{_QUOTED})"(?: (?P<rest>.*))?',
    r"(?: (?P<rest>.*))?",
)
_PATTERNS: Final = {
    KINDS.index(kind): [_compiled(pattern) for pattern in patterns]
    for kind, patterns in {
        "rfc5424": [
            r"<(?P<priority>\d{1,3})>1 (?P<time>\S+) (?P<host>\S+) (?P<program>\S+) \S+ \S+ "
            r"(?:-|\[.*?\](?= |\Z)) ?(?P<message>.*)"
        ],
        "rfc3164": [
            r"(?:<(?P<priority>\d{1,3})>)?(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) "
            rf"(?P<clock>\d\d:\d\d:\d\d) (?P<host>\S+) {_PROGRAM}(?P<message>.*)"
        ],
        "isosyslog": [
            r"(?P<time>\S+) (?P<host>\S+) (?P<program>[^\s:\[]+)(?:\[\d+\])?: (?P<message>.*)"
        ],
        "access": [
            rf'{_ACCESS_HEAD}{request}" (?P<status>\d{{3}}) (?P<size>\d+|-){tail}'
            for request in _ACCESS_REQUESTS
            for tail in _ACCESS_TAILS
        ],
        "errorlog": [
            r"\[[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) (?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)"
            r"(?:\.\d+)? (?P<year>\d{4})\] (?:\[(?:\w*:)?(?P<level>\w+)\] )?(?P<message>.*)"
        ],
        "shortdate": [
            rf"(?P<short>{_SHORT}) +(?:\d{{1,10}} +)?(?:{_LEVEL}[ :]+)?"
            r"(?:(?P<program>[\w.$*-]{1,200}): )?(?P<message>.*)"
        ],
        "labelled": [
            rf"\S+ (?P<time>\d{{9,10}}) \d{{4}}\.\d\d\.\d\d (?P<host>\S+) {collected}"
            for collected in (
                rf"{_WORDS} \S+ {_PROGRAM}(?P<message>.*)",
                r"\d{4}-\d\d-\d\d-[\d.]+ \S+ \S+ \S+ (?P<level>[A-Z]+) (?P<message>.*)",
                r"(?P<message>.*)",
            )
        ],
        "text": [
            rf"{file}\[?(?P<time>{_ISO})\]?[ ,:|-]*(?:(?:\d{{1,10}} +)?\[?{_LEVEL}\]?[ :|]+)?"
            r"(?P<message>.*)"
            for file in (_FILE, "")
        ],
    }.items()
}
_LOGFMT_PAIR = _compiled(rf'(?<![\w.@/-])([\w.@/-]++)=(?:"({_QUOTED})"|([^\s"]*))')
_ESCAPED = _compiled(r"\\(.)")
_REQUEST_SECONDS = re.compile(r"[0-9]+\.[0-9]+")


def fault_of(value: bytes | None) -> int:
    if not value:
        return 1
    if len(value) > LINE_BYTES_MAX:
        return 2
    try:
        value.decode()
    except UnicodeDecodeError:
        return 3
    return 4 if b"\x01" in value else 0


def _without_marks(value: bytes) -> bytes:
    """Without a byte-order mark, and what ends a line."""
    return value.rstrip(b" \r\n").removeprefix(b"\xef\xbb\xbf")


def detect(line: bytes) -> int:
    return next((kind for kind, begins in _BEGINS if begins.match(line)), _UNKNOWN)


def read_logfmt(line: bytes) -> Pairs:
    found: Pairs = []
    for name, quoted, plain in _LOGFMT_PAIR.findall(line):
        value = _ESCAPED.sub(rb"\1", quoted) if quoted else plain
        found.append((name.decode(), value.decode()))
    return found


def read_layout(kind: int, line: bytes) -> Slots | None:
    """What the groups of a layout hold; None if the line is not as the layout says."""
    if kind == _ACCESS:
        line = line.removesuffix(b"\n").removesuffix(b"\r")
    for pattern in _PATTERNS[kind]:
        if found := pattern.fullmatch(line):
            groups = found.groupdict().items()
            return {name: text.decode() for name, text in groups if text is not None}
    return None


def slots_of(pairs: Pairs) -> Slots:
    """Of several names for one thing the first counts; of one name that is repeated the last."""
    said = {name: value for name, value in pairs if value is not None}
    slots = {}
    for slot, aliases in ALIASES.items():
        found = [said[alias] for alias in aliases if alias in said]
        if found:
            slots[slot] = found[0]
    return slots


class Scanner:
    def __init__(
        self,
        wanted: Collection[str],
        gauges: Sequence[str],
        patterns: Sequence[Sequence[Steps]] = (),
    ) -> None:
        self._wanted = [name for name in SCANNED if name in wanted]
        self._gauges = gauges
        self._patterns = patterns

    def faults(self, values: pa.BinaryArray) -> NDArray[np.int8]:
        return np.array([fault_of(value) for value in values.to_pylist()], np.int8)

    def scan(
        self,
        values: pa.BinaryArray,
        sources: pa.StringArray,
        records_us: pa.Int64Array,
        given: NDArray[np.int8],
        custom: pa.MapArray | None,
    ) -> dict[str, pa.Array]:
        """The wanted columns, and `kind`, `fault`, `time` and `is_local` of each row.

        `given` is the kind that a rule gives, -1 where the line tells its own; above the last kind
        it is the place of the patterns that do, counted from there. Records' times are those of
        a clock in the zone of lines without one.
        """
        customs = [None] * len(values) if custom is None else custom.to_pylist()
        rows = [
            self._row(*row)
            for row in zip(
                values.to_pylist(),
                sources.to_pylist(),
                records_us.to_pylist(),
                given.tolist(),
                customs,
                strict=True,
            )
        ]
        types = {
            "kind": pa.int8(),
            "fault": pa.int8(),
            "time": pa.int64(),
            "is_local": pa.bool_(),
            **{name: EVENT_SCHEMA.field(name).type for name in self._wanted},
        }
        return {name: pa.array([row[name] for row in rows], kept) for name, kept in types.items()}

    def _row(
        self,
        value: bytes | None,
        source: str,
        record_us: int | None,
        given: int,
        custom: Pairs | None,
    ) -> dict[str, Any]:
        fault = fault_of(value)
        line = b"" if fault else _without_marks(value or b"")
        kind = detect(line) if given in (-1, _TEXT) else min(given, _PATTERN)
        if given == _TEXT and kind not in _TEXTS:
            kind = _TEXT
        time: Time | None = None
        if kind == _PATTERN and not fault:
            kind_read = kind
            slots, pairs, time = self._read_by_patterns(given - _PATTERN - 1, line, record_us)
        else:
            kind_read, slots, pairs = (kind, {}, None) if fault else _read(kind, line, custom)
        texts = {name: text for name, text in slots.items() if text not in ("", "-")}
        if kind != _PATTERN and not fault:
            time = _time(kind, texts, record_us)
        event = _event(texts, source)
        event["fields"] = None if pairs is None else list(dict(pairs).items())
        event["gauges"] = self._gauge_values(pairs)
        return {
            "kind": kind_read,
            "fault": fault,
            "time": time.micros if time else None,
            "is_local": time is not None and time.is_local,
            **{name: event[name] for name in self._wanted},
        }

    def _read_by_patterns(
        self, rule: int, line: bytes, record_us: int | None
    ) -> tuple[Slots, Pairs | None, Time | None]:
        found = _patterns_pure.read_line(self._patterns[rule], line, record_us)
        if found is None:
            return {}, None, None
        pairs, time = found
        return slots_of(pairs), pairs, time

    def _gauge_values(self, pairs: Pairs | None) -> list[float | None]:
        said = {name: value for name, value in pairs or () if value is not None}
        return [double_of(said.get(name)) for name in self._gauges]


def _read(kind: int, line: bytes, custom: Pairs | None) -> tuple[int, Slots, Pairs | None]:
    """The kind as it turns out, the slots, and all fields of a line that names them."""
    pairs: Pairs | None
    if kind == _JSON:
        pairs = _json_pure.pairs_of(line.decode())
    elif KINDS[kind] == "logfmt":
        pairs = read_logfmt(line)
    elif KINDS[kind] == "custom":
        pairs = custom
    elif kind == _UNKNOWN:
        return kind, {}, None
    else:
        slots = read_layout(kind, line) or {}
        if kind == _ACCESS and slots:
            kind = KINDS.index("combined" if "agent" in slots else "common")
        return kind, slots, None
    return kind, slots_of(pairs or []), pairs


def _time(kind: int, texts: Slots, record_us: int | None) -> Time | None:
    name = KINDS[kind]
    if name == "access":
        return _times_pure.access_time(texts.get("time"))
    if name in ("rfc3164", "errorlog"):
        if "month" not in texts:
            return None
        return _times_pure.words_time(
            year=texts.get("year"),
            month=texts["month"],
            day=texts["day"],
            clock=texts["clock"],
            record_us=record_us,
        )
    if name == "shortdate":
        return _times_pure.short_time(texts["short"]) if "short" in texts else None
    return _times_pure.numeric_or_iso_time(texts.get("time"))


def _event(texts: Slots, source: str) -> dict[str, Any]:
    event: dict[str, Any] = {name: texts.get(name) for name in SCANNED}
    event["host"] = texts.get("host", source.partition("/")[0])
    address, agent = texts.get("address"), texts.get("agent")
    event["visitor"] = texts.get("user")
    if "user" not in texts and address is not None:
        event["visitor"] = _joined("|", (address, agent))
    event["status"] = integer_of(texts.get("status"), bits=32)
    event["size_bytes"] = integer_of(texts.get("size"), bits=64)
    event["duration_ms"] = double_of(texts.get("duration"))
    # Some servers write the time a request took, in seconds, at the end of the line.
    rest = texts.get("rest", "")
    if event["duration_ms"] is None and _REQUEST_SECONDS.fullmatch(rest):
        milliseconds = (double_of(rest) or 0.0) * 1000
        event["duration_ms"] = milliseconds if milliseconds != float("inf") else None
    if level := texts.get("level"):
        lowered = level.encode().lower().decode()
        event["level"] = LEVEL_LETTERS.get(lowered, lowered)
    elif priority := texts.get("priority"):
        event["level"] = SEVERITIES[int(priority) % 8]
    return event


def _joined(separator: str, parts: Iterable[str | None]) -> str:
    return separator.join(part for part in parts if part is not None)
