"""Formats whose lines are told by one regular expression, and where its groups go.

A layout names its groups by the columns they become. Expressions are Java's. None has a
group that repeats without a bound: Java's matcher would use the stack for each turn, and a
hostile line could end a task.
"""

import re
from dataclasses import dataclass
from typing import Final

_QUOTED: Final = r'[^"\\]*(?:\\.[^"\\]*){0,200}'
_LEVELS: Final = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|CRIT|FATAL"
_ISO: Final = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"

_FILE: Final = r"\S{1,100}\.log\S{0,60} "


@dataclass(frozen=True, slots=True)
class Layout:
    # A line that begins so is of this format; cheap, because every line is asked.
    begins: str
    pattern: str
    columns: tuple[str, ...]
    # Ranges of which its first character is, such as `0-9`; none where it may be any.
    first: tuple[str, ...]


def _layout(begins: str, pattern: str, *, first: tuple[str, ...] = ()) -> Layout:
    """Named groups into plain ones, with the names beside."""
    names = tuple(re.findall(r"\(\?<(\w+)>", pattern))
    return Layout(begins, "(?s)" + re.sub(r"\(\?<\w+>", "(", pattern), names, first)


# In this order a line is tried.
LAYOUTS: Final = {
    "rfc5424": _layout(
        r"^<\d{1,3}>1 ",
        r"^<(?<priority>\d{1,3})>1 (?<time>\S+) (?<host>\S+) (?<program>\S+) (?<process>\S+) \S+ "
        r"(?:-|\[.*?\](?= |$)) ?(?<message>.*)$",
        first=("<",),
    ),
    "rfc3164": _layout(
        r"^(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d ",
        r"^(?:<(?<priority>\d{1,3})>)?(?<month>[A-Z][a-z]{2}) +(?<day>\d{1,2}) "
        r"(?<clock>\d\d:\d\d:\d\d) (?<host>\S+) "
        r"(?:(?<program>[^\s:\[]+)(?:\[(?<process>[^\]]*)\])?: ?)?(?<message>.*)$",
        first=("<", "A-Z"),
    ),
    # What rsyslog writes into files since Debian 12.
    "isosyslog": _layout(
        r"^\d{4}-\d\d-\d\dT\S+ \S+ (?:[^\s:\[]+\[\d+\]|kernel|systemd): ",
        r"^(?<time>\S+) (?<host>\S+) (?<program>[^\s:\[]+)(?:\[(?<process>\d+)\])?: "
        r"(?<message>.*)$",
        first=("0-9",),
    ),
    "access": _layout(
        r"^\S+ \S+ \S+ \[\d\d/",
        r"^(?<address>\S+) \S+ (?<user>\S+) \[(?<time>[^\]]{20,40})\] "
        r'"(?:(?<method>[A-Z]{3,20}) (?<path>[^ "?]*)(?:\?(?<query>[^ "]*))?(?: HTTP/[\d.]+)?'
        rf'|{_QUOTED})" (?<status>\d{{3}}) (?<size>\d+|-)'
        rf'(?: "(?<referrer>{_QUOTED})" "(?<agent>{_QUOTED})")?(?: (?<rest>.*))?$',
    ),
    # Apache's error log.
    "errorlog": _layout(
        r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d",
        r"^\[[A-Z][a-z]{2} (?<month>[A-Z][a-z]{2}) (?<day>\d\d) (?<clock>\d\d:\d\d:\d\d)"
        r"(?:\.\d+)? (?<year>\d{4})\] (?:\[(?:\w*:)?(?<level>\w+)\] )?(?<message>.*)$",
        first=("[",),
    ),
    # Years of two digits: `081109 203615 148 INFO ...` of HDFS, `17/06/09 20:10:40 INFO` of Spark.
    "shortdate": _layout(
        r"^(?:\d{6} \d{6}|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) ",
        r"^(?<short>\d{6} \d{6}|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) +(?:\d{1,10} +)?"
        rf"(?:(?<level>(?i:{_LEVELS}))[ :]+)?(?:(?<program>[\w.$*-]{{1,200}}): )?(?<message>.*)$",
        first=("0-9",),
    ),
    # What collectors of large machines write before a line: a label, the second, the day, the host.
    "labelled": _layout(
        r"^\S{1,100} \d{9,10} \d{4}\.\d\d\.\d\d ",
        r"^\S+ (?<time>\d{9,10}) \d{4}\.\d\d\.\d\d (?<host>\S+) "
        r"(?:[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S+ "
        r"(?:(?<program>[^\s:\[]{1,200})(?:\[(?<process>[^\]]*)\])?: ?)?"
        r"|\d{4}-\d\d-\d\d-[\d.]+ \S+ \S+ \S+ (?<level>[A-Z]+) )?(?<message>.*)$",
    ),
    # A file's name may stand before the time, a process number after it, as OpenStack has both.
    "text": _layout(
        rf"^(?:{_FILE})?\[?{_ISO}",
        rf"^(?:{_FILE})?\[?(?<time>{_ISO})\]?[ ,:|-]*"
        rf"(?:(?:\d{{1,10}} +)?\[?(?<level>(?i:{_LEVELS}))\]?[ :|]+)?(?<message>.*)$",
    ),
}
# Variants of text: told from each line, also where a source is said to be text.
TEXTS: Final = ("errorlog", "shortdate", "labelled")

JSON_BEGINS: Final = r"^\s*\{"
LOGFMT_BEGINS: Final = r"^[\w.@/-]+=\S"
LOGFMT_PAIR: Final = rf'([\w.@/-]+)=("{_QUOTED}"|[^\s"]*)'

# Names that a field of a JSON, logfmt or custom line goes by, first one first.
ALIASES: Final = {
    "time": ("ts", "time", "timestamp", "@timestamp", "datetime", "date", "t"),
    "host": ("host", "hostname", "node"),
    "service": ("service", "svc", "app", "component"),
    "program": ("program", "logger"),
    "address": ("address", "remote_addr", "client_ip", "ip"),
    "user": ("user", "user_id", "userid", "uid"),
    "method": ("method", "verb"),
    "path": ("path", "route", "uri", "url"),
    "query": ("query",),
    "status": ("status", "status_code", "code"),
    "size": ("size", "bytes", "bytes_sent"),
    "duration": ("duration_ms", "latency_ms", "elapsed_ms", "ms", "took_ms"),
    "level": ("level", "severity", "lvl"),
    "message": ("message", "msg", "text"),
    "referrer": ("referrer", "referer"),
    "agent": ("agent", "user_agent"),
}
