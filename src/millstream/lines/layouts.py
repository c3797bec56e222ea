"""The formats, by number, and the names that fields go by.

A scanner gives each line a kind. The order of kinds is the order in which a line is tried,
with exceptions: `custom` and `pattern` are only ever given, and `common` and `combined` are
told after a line was read.
"""

from typing import Final

LINE_BYTES_MAX: Final = 64 * 1024
# How deep a JSON value may nest, the line's own object included.
JSON_DEPTH_MAX: Final = 200

KINDS: Final = (
    *("unknown", "json", "rfc5424", "rfc3164", "isosyslog", "access", "errorlog", "shortdate"),
    *("labelled", "text", "logfmt", "custom", "common", "combined", "pattern"),
)
# What people are told.
_SHOWN: Final = {
    "isosyslog": "syslog",
    "errorlog": "text",
    "shortdate": "text",
    "labelled": "text",
}
KIND_NAMES: Final = tuple(_SHOWN.get(kind, kind) for kind in KINDS)

# Why a value is no line at all; the first is none.
# `_scan.pyx` knows their places.
FAULTS: Final = (
    None,
    "empty",
    f"longer than {LINE_BYTES_MAX:,} bytes",
    "not UTF-8",
    "control characters",
)

# Names that a field of a JSON, logfmt or custom line goes by, first one first.
ALIASES: Final = {
    "time": ("ts", "time", "timestamp", "@timestamp", "datetime", "date", "t"),
    "host": ("host", "hostname", "node"),
    "service": ("service", "svc", "app", "component"),
    "program": ("program", "logger", "tag"),
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
# By the last three bits of a syslog priority.
SEVERITIES: Final = (
    *("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"),
)
# What Android, glog and others write instead of a level.
LEVEL_LETTERS: Final = {
    "v": "trace",
    "t": "trace",
    "d": "debug",
    "i": "info",
    "n": "notice",
    "w": "warning",
    "e": "error",
    "c": "critical",
    "f": "fatal",
}
LEVELS: Final = (
    *("trace", "debug", "info", "notice", "warn", "warning", "error", "err", "critical"),
    *("crit", "fatal"),
)
MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
