"""The pipeline file: what a pipeline reads, how it parses, and what it produces.

One table, `FIELDS`, has every setting with its default, its meaning, and whether it may be
changed under an existing checkpoint. Reading, the file that `pipeline init` writes, `diff`
and the documentation come from it. No Spark here.
"""

import difflib
import math
import os
import re
import runpy
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from millstream.lines.line_patterns import PatternError, compile_pattern
from millstream.lines.rules import SourceRule

FORMATS: Final = ("auto", "access", "json", "logfmt", "rfc3164", "rfc5424", "text")
# A scanner numbers them in seven bits, behind the formats.
PATTERN_RULES_MAX: Final = 100
MASKS: Final = ("address", "user", "query")
# What a window already contains; a gauge or counter cannot have one of these names.
WINDOW_COLUMNS: Final = (
    *("window_start", "window_end", "output", "name", "final", "count", "per_second", "errors"),
    *("size_bytes", "duration_ms_p50", "duration_ms_p95", "duration_ms_p99", "duration_ms_max"),
    *("percentile_rank_error", "visitors", "visitors_relative_sd", "top_pages"),
)

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}


class SpecError(Exception):
    """The file is wrong; the text says where and what is expected."""


class Change(Enum):
    """What a changed setting means for a pipeline that ran before."""

    FREE = "takes effect at the next start"
    RESULTS = "changes results from the next start on; older ones stay unchanged"
    STATE = "does not fit the stored state: start over with another `home`, or undo the change"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    default: object
    read: Callable[[object], object]
    change: Change
    text: str


@dataclass(frozen=True, slots=True)
class Spec:
    name: str
    bootstrap: str
    home: Path
    # Empty: in the home.
    state_location: str
    timezone: str
    trigger_ms: int
    state_partitions: int
    topics: tuple[str, ...]
    records_per_batch_max: int
    ahead_ms: int
    late_ms: int
    skew_ms: int
    mask: tuple[str, ...]
    salt: str
    sources: tuple[SourceRule, ...]
    window_ms: int
    top: int
    session_gap_ms: int
    funnel: tuple[str, ...]
    gauges: tuple[str, ...]
    counters: tuple[str, ...]
    silent_after_ms: int
    error_share: float
    error_count_min: int
    watch_anomalies: bool
    anomaly_sensitivity: float
    watch_templates: bool
    top_templates: int
    warehouse: str
    # Empty: in the home.
    tables_location: str
    compact_every: int
    keep_days: int
    daily_report: bool
    weekly_report: bool
    monthly_report: bool

    @property
    def watermark_delay_ms(self) -> int:
        """Wide enough that no window closes before a line that was not classed as late.

        The newest event is at most `ahead` after its record's time, the oldest at most `late`
        before it, and records of one batch may be `skew` older than those before.
        """
        return self.ahead_ms + self.late_ms + self.skew_ms


def parse_duration(value: object) -> int:
    """Milliseconds of `90s`, `10 minutes`, `1 hour`."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", str(value))
    unit = found[2] if found else ""
    unit_ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
    if found is None or unit_ms is None:
        raise ValueError(f"{value!r} is not a duration such as '90s' or '10 minutes'")
    return int(found[1]) * unit_ms


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _name(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", text):
        raise ValueError(
            f"{text!r}: letters, digits, - and _ only, because it is part of topic names"
        )
    return text


def _whole(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{value!r} is not a whole number of at least {least}")
        return value

    return read


def _share(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is not a share between 0 and 1")
    return float(value)


def _positive(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < float(str(value)) < math.inf:
        raise ValueError(f"{value!r} is not a number above 0")
    return float(str(value))


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{value!r} is not a list of texts")
    return tuple(value)


def _topics(value: object) -> tuple[str, ...]:
    if not (found := _texts(value)):
        raise ValueError("no topic to read")
    return found


def _masks(value: object) -> tuple[str, ...]:
    found = _texts(value)
    for each in found:
        _one_of(MASKS)(each)
    return found


def _gauges(value: object) -> tuple[str, ...]:
    found = _texts(value)
    for each in found:
        if not re.fullmatch(r"[a-z_]\w*", each) or each in WINDOW_COLUMNS or found.count(each) > 1:
            raise ValueError(f"{each!r} cannot be the name of a gauge or counter")
    return found


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    return read


def _location(value: object) -> str:
    text = _text(value)
    if text and not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/\s]+)*", text):
        raise ValueError(f"{text!r} is not 's3://BUCKET/FOLDER'")
    return text


def _zone(value: object) -> str:
    try:
        ZoneInfo(_text(value))
    except Exception:  # zoneinfo raises several kinds, all of which mean the same here
        raise ValueError(f"{value!r} is not a time zone such as 'UTC' or 'Europe/Berlin'") from None
    return _text(value)


def _duration(value: object) -> int:
    found = parse_duration(value)
    if found <= 0:
        raise ValueError(f"{value!r} is not a positive duration")
    return found


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 2


FIELDS: Final[Mapping[str, tuple[Field, ...]]] = {
    "": (
        Field("name", "site", _name, Change.STATE, "The prefix of the result topics."),
        Field("bootstrap", "127.0.0.1:9092", _text, Change.FREE, "The broker to connect to first."),
        Field("home", "pipeline-data", _text, Change.STATE,
              "Checkpoints, tables and reports; beside this file unless absolute."),
        Field("state", "", _location, Change.STATE,
              "Where open results are kept: `s3://BUCKET/FOLDER`; empty for `home`."),
        Field("timezone", "UTC", _zone, Change.RESULTS,
              "For the days of tables and reports, and for times without a zone."),
        Field("trigger", "5 seconds", _duration, Change.FREE, "How often a micro-batch starts."),
        Field("state_partitions", cores(), _whole(1), Change.STATE,
              "Partitions of each result topic, by default the number of cores."),
    ),
    "input": (
        Field("topics", ["logs"], _topics, Change.STATE,
              "Topics of lines; a record's key is its source."),
        Field("records_per_batch_max", 500_000, _whole(1), Change.FREE,
              "Maximum number of records in a micro-batch."),
    ),
    "parse": (
        Field("ahead", "1 minute", _duration, Change.STATE,
              "An event this much after its record's timestamp is a dead letter: `ahead`."),
        Field("late", "10 minutes", _duration, Change.STATE,
              "An event this much before its record's timestamp is a dead letter: `late`."),
        Field("skew", "1 minute", _duration, Change.STATE,
              "How far timestamps of records may go back from batch to batch."),
        Field("mask", [], _masks, Change.RESULTS,
              "What is masked before it is stored: address, user, query."),
        Field("salt", "", _text, Change.RESULTS, "Mixed into hashes of visitors and users."),
    ),
    "windows": (
        Field("length", "1 minute", _duration, Change.STATE, "The length of a window."),
        Field("top", 10, _whole(1), Change.STATE, "Number of pages in the list of top pages."),
        Field("session_gap", "30 minutes", _duration, Change.STATE,
              "A visit ends after this much silence."),
        Field("funnel", ["/product*", "/cart", "/checkout", "/thanks"], _texts, Change.STATE,
              "Steps of a visit, in order; * matches anything."),
        Field("gauges", ["cpu", "memory", "disk"], _gauges, Change.STATE,
              "Numeric fields of a host: mean and largest value in its windows."),
        Field("counters", [], _gauges, Change.STATE,
              "Numeric fields of a host that only grow: their growth in its windows."),
        Field("silent_after", "20 seconds", _duration, Change.RESULTS,
              "A host that is silent for this long causes an alert."),
        Field("error_share", 0.1, _share, Change.RESULTS,
              "A service whose share of errors in a window is larger causes an alert."),
        Field("error_count_min", 5, _whole(1), Change.RESULTS,
              "Fewer errors in a window than this cause no alert."),
    ),
    "anomalies": (
        Field("watch", True, _yes_or_no, Change.RESULTS,
              "Whether values of closed windows that are far from the usual cause alerts."),
        Field("sensitivity", 6.0, _positive, Change.RESULTS,
              "How many spreads a value may be away from the usual; less means more alerts."),
    ),
    "templates": (
        Field("watch", True, _yes_or_no, Change.RESULTS,
              "Whether messages are counted by template, and new and vanished ones cause alerts."),
        Field("top", 20, _whole(1), Change.RESULTS,
              "Number of templates in the list of a window."),
    ),
    "warehouse": (
        Field("format", "delta", _one_of(("delta", "parquet", "iceberg", "none")), Change.STATE,
              "The format of the tables: `delta`, plain `parquet`, `iceberg`, or `none`."),
        Field("location", "", _location, Change.STATE,
              "Where the tables are: `s3://BUCKET/FOLDER`, only `delta`; empty for `home`."),
        Field("compact_every", 50, _whole(1), Change.FREE,
              "Small files are merged after this many batches."),
        Field("keep_days", 0, _whole(0), Change.FREE,
              "Days older than this are removed from the tables; 0 keeps all."),
    ),
    "reports": (
        Field("daily", True, _yes_or_no, Change.FREE,
              "A report of each day, written when no more lines of it can arrive."),
        Field("weekly", True, _yes_or_no, Change.FREE, "A report of each week, Monday to Sunday."),
        Field("monthly", True, _yes_or_no, Change.FREE, "A report of each month."),
    ),
}  # fmt: skip


def load_spec(path: Path) -> Spec:
    try:
        text = path.read_text()
    except OSError as failed:
        raise SpecError(f"{failed.strerror}. `millstream pipeline init` writes one") from None
    if path.suffix == ".py":
        return _read_spec(_python_settings(path), folder=path.parent)
    return parse_spec(text, folder=path.parent)


def _python_settings(path: Path) -> dict[str, Any]:
    """The file's assignments; names in capitals or with an underscore are ignored."""
    try:
        names = runpy.run_path(str(path))
    except Exception as failed:  # the user's code may raise anything
        raise SpecError(f"{type(failed).__name__}: {failed}") from None
    values = (str, int, float, list, tuple, dict)
    return {
        name: value
        for name, value in names.items()
        if isinstance(value, values) and not name.startswith("_") and not name.isupper()
    }


def parse_spec(text: str, *, folder: Path) -> Spec:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise SpecError(f"not TOML: {wrong}") from None
    return _read_spec(raw, folder=folder)


def _read_spec(raw: dict[str, Any], *, folder: Path) -> Spec:
    rules = raw.get("parse", {}).pop("sources", []) if isinstance(raw.get("parse"), dict) else []
    values = _read_all(raw)
    for name in values["windows.counters"]:
        if name in values["windows.gauges"]:
            raise SpecError(f"windows.counters: {name!r} is one of windows.gauges, too")
    if values["warehouse.location"] and values["warehouse.format"] not in ("delta", "none"):
        raise SpecError("warehouse.location: only tables of format 'delta' can be in a bucket")
    return Spec(
        name=values["name"],
        bootstrap=values["bootstrap"],
        home=folder / values["home"],
        state_location=values["state"],
        timezone=values["timezone"],
        trigger_ms=values["trigger"],
        state_partitions=values["state_partitions"],
        topics=values["input.topics"],
        records_per_batch_max=values["input.records_per_batch_max"],
        ahead_ms=values["parse.ahead"],
        late_ms=values["parse.late"],
        skew_ms=values["parse.skew"],
        mask=values["parse.mask"],
        salt=values["parse.salt"],
        sources=_read_rules(rules),
        window_ms=values["windows.length"],
        top=values["windows.top"],
        session_gap_ms=values["windows.session_gap"],
        funnel=values["windows.funnel"],
        gauges=values["windows.gauges"],
        counters=values["windows.counters"],
        silent_after_ms=values["windows.silent_after"],
        error_share=values["windows.error_share"],
        error_count_min=values["windows.error_count_min"],
        watch_anomalies=values["anomalies.watch"],
        anomaly_sensitivity=values["anomalies.sensitivity"],
        watch_templates=values["templates.watch"],
        top_templates=values["templates.top"],
        warehouse=values["warehouse.format"],
        tables_location=values["warehouse.location"],
        compact_every=values["warehouse.compact_every"],
        keep_days=values["warehouse.keep_days"],
        daily_report=values["reports.daily"],
        weekly_report=values["reports.weekly"],
        monthly_report=values["reports.monthly"],
    )


# The values of a file are whatever TOML allows until its field parses each.
def _read_all(raw: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for section, fields in FIELDS.items():
        table = raw if not section else raw.get(section, {})
        if not isinstance(table, dict):
            raise SpecError(f"{section} is not a table: write [{section}]")
        known = [field.name for field in fields]
        if not section:
            known += [each for each in FIELDS if each]
        for name in table:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"; do you mean {close[0]!r}?" if close else ""
                raise SpecError(f"{_full(section, name)} is not a setting{hint}")
        for field in fields:
            try:
                value = field.read(table.get(field.name, field.default))
            except ValueError as wrong:
                raise SpecError(f"{_full(section, field.name)}: {wrong}") from None
            values[_full(section, field.name)] = value
    return values


def _read_rules(rules: object) -> tuple[SourceRule, ...]:
    if not isinstance(rules, list):
        raise SpecError("parse.sources is not a list: write [[parse.sources]]")
    found = []
    for number, rule in enumerate(rules, start=1):
        where = f"parse.sources {number}"
        if not isinstance(rule, dict) or not isinstance(rule.get("match"), str):
            raise SpecError(f"{where} needs match = '...', a pattern of sources")
        if unknown := set(rule) - {"match", "format", "function", "pattern"}:
            raise SpecError(f"{where}: {sorted(unknown)[0]} is not a setting")
        function = rule.get("function")
        if function is not None and not re.fullmatch(r"[\w.]+:\w+", str(function)):
            raise SpecError(f"{where}: function is 'module:name', not {function!r}")
        if rule.get("format", "auto") not in FORMATS:
            raise SpecError(f"{where}: format is one of {', '.join(FORMATS)}")
        patterns = _read_patterns(rule.get("pattern", []), where)
        chosen = [name for name in ("format", "function", "pattern") if name in rule]
        if patterns and len(chosen) > 1:
            raise SpecError(f"{where}: a pattern stands alone, without {chosen[0]}")
        format_name = rule.get("format", "auto")
        found.append(SourceRule(rule["match"], format_name, function or "", patterns))
    if sum(bool(rule.patterns) for rule in found) > PATTERN_RULES_MAX:
        raise SpecError(f"parse.sources: at most {PATTERN_RULES_MAX} may have patterns")
    return tuple(found)


def _read_patterns(given: object, where: str) -> tuple[str, ...]:
    """One pattern, or several in the order of trying."""
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list | tuple):
        raise SpecError(f"{where}: pattern is a text, or a list of texts")
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise SpecError(f"{where}: pattern is a text, or a list of texts")
        try:
            compile_pattern(pattern)
        except PatternError as wrong:
            raise SpecError(f"{where}: pattern {pattern!r}: {wrong}") from None
    return tuple(patterns)


def _full(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def example_spec(**changed: object) -> str:
    """The file with every setting at its default, or as changed, and its meaning."""
    lines = ["# A Millstream pipeline. Every setting is here with its default.", ""]
    for section, fields in FIELDS.items():
        if section:
            lines += [f"[{section}]"]
        for field in fields:
            value = changed.get(_full(section, field.name), field.default)
            lines += [f"# {field.text}", f"{field.name} = {_toml(value)}"]
        lines.append("")
    lines += [
        "# The format is detected per line. To fix it, or to parse by a pattern or a function:",
        "# [[parse.sources]]",
        "# match = 'nginx/*'",
        "# format = 'access'",
        "# # or: pattern = '<time:%m-%d %H:%M:%S.%f> <pid> <level> <program>: <message>'",
        "# # or: function = 'my_module:parse'",
    ]
    return "\n".join(lines) + "\n"


def example_python(**changed: object) -> str:
    """The same as Python: a table is a dictionary, and a value may be computed."""
    lines = ["# A Millstream pipeline. Every setting is here with its default.", ""]
    for section, fields in FIELDS.items():
        lines += [f"{section} = {{"] if section else []
        for field in fields:
            value = changed.get(_full(section, field.name), field.default)
            text = [f"# {field.text}", f"{field.name} = {value!r}"]
            if section:
                text = [f"    # {field.text}", f"    {field.name!r}: {value!r},"]
            lines += text
        lines += ["}", ""] if section else [""]
    lines += [
        "# The format is detected per line. To fix it, or to parse by a pattern or a function:",
        "# parse['sources'] = [{'match': 'nginx/*', 'format': 'access'}]",
    ]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
