"""Lines of every format, what is to be read from them, and lines that are none.

All of the good ones are of two seconds before NOW.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from millstream.lines.parser import LineRules

NOW = datetime(2026, 9, 21, 14, 0, 0, tzinfo=UTC)

GOOD: dict[str, dict[str, Any]] = {
    '203.0.113.9 - frank [21/Sep/2026:15:59:58 +0200] "GET /a/b?x=1&y HTTP/1.1" 200 2326 '
    '"https://x.example/" "Agent \\"quoted\\" (X11)"': {
        "format": "combined",
        "address": "203.0.113.9",
        "user": "frank",
        "method": "GET",
        "path": "/a/b",
        "query": "x=1&y",
        "status": 200,
        "size_bytes": 2326,
        "referrer": "https://x.example/",
        "agent": 'Agent \\"quoted\\" (X11)',
    },
    '::1 - - [21/Sep/2026:13:59:58 +0000] "POST /x HTTP/2.0" 304 -': {
        "format": "common",
        "address": "::1",
        "user": None,
        "method": "POST",
        "size_bytes": None,
        "agent": None,
    },
    '203.0.113.9 - - [21/Sep/2026:13:59:58 +0000] "GET / HTTP/1.1" 200 5 "-" "a" 0.250': {
        "format": "combined",
        "duration_ms": 250.0,
        "referrer": None,
    },
    '203.0.113.9 - - [21/Sep/2026:13:59:58 +0000] "\\x16\\x03\\x01" 400 0 "-" "-"': {
        "format": "combined",
        "method": None,
        "status": 400,
    },
    '{"ts":"2026-09-21T13:59:58.000Z","service":"cart","status":500,"duration_ms":1.5,'
    '"a":{"b":[1]},"level":"ERROR"}': {
        "format": "json",
        "service": "cart",
        "status": 500,
        "duration_ms": 1.5,
        "level": "error",
    },
    '{"time":1789999198,"user":7}': {"format": "json", "user": "7"},
    '{"time":1789999198000,"msg":"ms"}': {"format": "json", "message": "ms"},
    '{"time":1789999198.000,"msg":"fraction"}': {"format": "json", "message": "fraction"},
    'ts=2026-09-21T13:59:58Z host=db-1 cpu=0.5 state="all \\"good\\"" empty= cpu=0.6': {
        "format": "logfmt",
        "host": "db-1",
    },
    '<165>1 2026-09-21T13:59:58.000Z db-1 su 77 ID47 [a b="c"][d e="]"] it\'s over': {
        "format": "rfc5424",
        "host": "db-1",
        "program": "su",
        "level": "notice",
        "message": "it's over",
    },
    "<34>Sep 21 13:59:58 db-1 su[77]: failed": {
        "format": "rfc3164",
        "host": "db-1",
        "program": "su",
        "level": "critical",
        "message": "failed",
    },
    "Sep 21 13:59:58 db-1 kernel: [    0.0] hello": {
        "format": "rfc3164",
        "program": "kernel",
        "level": None,
        "message": "[    0.0] hello",
    },
    "2026-09-21T13:59:58.000000+00:00 db-1 sshd[4]: hi": {
        "format": "syslog",
        "host": "db-1",
        "program": "sshd",
        "message": "hi",
    },
    "2026-09-21 13:59:58,000 WARNING disk is slow": {
        "format": "text",
        "host": "web-1",
        "level": "warning",
        "message": "disk is slow",
    },
    "2026-09-21 13:59:58,000 - INFO  [main] - began": {
        "level": "info",
        "message": "[main] - began",
    },
    "2026/09/21 13:59:58 [error] 7#7: gone": {"format": "text", "level": "error"},
    "[Mon Sep 21 13:59:58.123 2026] [core:notice] ready": {
        "format": "text",
        "level": "notice",
        "message": "ready",
    },
    "[2026-09-21 15:59:58 +0200] plain": {"format": "text", "message": "plain"},
    "260921 135958 214 WARN dfs.DataNode$DataXceiver: a block went away": {
        "format": "text",
        "level": "warn",
        "program": "dfs.DataNode$DataXceiver",
        "message": "a block went away",
    },
    "26/09/21 13:59:58 INFO executor.Executor: Finished task 3.0": {
        "format": "text",
        "level": "info",
        "program": "executor.Executor",
        "message": "Finished task 3.0",
    },
    "nova-api.log.1.2026-09-21_14:00:01 2026-09-21 13:59:58.000 2931 ERROR nova.manager [-] x": {
        "format": "text",
        "level": "error",
        "message": "nova.manager [-] x",
    },
    "- 1789999198 2026.09.21 R02-M1 2026-09-21-06.59.58.363779 R02-M1 RAS KERNEL FATAL it broke": {
        "format": "text",
        "host": "R02-M1",
        "level": "fatal",
        "message": "it broke",
    },
    "ECC 1789999198 2026.09.21 dn228 Sep 21 06:59:58 dn228/dn228 crond(pam)[29]: opened": {
        "format": "text",
        "host": "dn228",
        "program": "crond(pam)",
        "message": "opened",
    },
}

BAD: dict[bytes, str] = {
    b"": "empty",
    b"\xff\xfe\x00garbage": "not UTF-8",
    "café".encode("latin-1"): "not UTF-8",
    b"a\x01b": "control characters",
    b"x" * 70_000: "longer than 65,536 bytes",
    b"no time here": "no known format",
    b'{"ts":"2026-09-21T13:5': "no time as json",
    b"[1,2]": "no known format",
    b'{"ts":"yesterday"}': "no time as json",
    b'{"ts":"12:00:00"}': "no time as json",
    b'{"ts":99999999999999999999999999}': "no time as json",
    b'1.2.3.4 - - [99/Foo/2026:15:59:58 +0200] "GET / HTTP/1.1" 200 1': "no time as common",
    b'1.2.3.4 - - [21/Sep/2026:15:59:58 +0200] "GET / HTTP/1.1" abc': "no time as access",
    b"Feb 30 13:59:58 db-1 su: no such day": "no time as rfc3164",
    b"<34>1 - - - - - -": "no time as rfc5424",
    b"a=1 b=2": "no time as logfmt",
    b"2026-13-77 99:99:99 nothing": "no time as text",
    b"269921 995958 1 INFO x": "no time as text",
    b".log" * 16_000: "no known format",
    b"- 1789999198 2026.09.21 " + b"a" * 60_000: "no time as text",
    b'k="' + b"\\x" * 30_000: "no time as logfmt",
    b'1.2.3.4 - - [21/Sep/2026:15:59:58 +0200] "' + b'\\"' * 30_000: "no time as access",
    b"{" * 60_000: "no time as json",
}


def rules(**changed: Any) -> LineRules:
    plain: dict[str, Any] = {
        "sources": (),
        "timezone": "UTC",
        "mask": (),
        "salt": "s",
        "gauges": ("cpu", "memory"),
        "ahead_ms": 60_000,
        "late_ms": 600_000,
    }
    return LineRules(**{**plain, **changed})


def records(
    lines: Sequence[str | bytes | None],
    *,
    source: str | bytes | None = "web-1/log",
    now: datetime | None = NOW,
) -> pa.RecordBatch:
    """As they come from a topic."""
    count = len(lines)
    key = source.encode() if isinstance(source, str) else source
    values = [line.encode() if isinstance(line, str) else line for line in lines]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key] * count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(["logs"] * count, pa.string()),
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([now] * count, pa.timestamp("us", tz="UTC")),
        ],
        ["key", "value", "topic", "partition", "offset", "timestamp"],
    )
