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
    # Of Python's own server, and of Werkzeug's.
    '127.0.0.1 - - [21/Sep/2026 13:59:58] "GET /a.html?q=1 HTTP/1.1" 200 -': {
        "format": "common",
        "path": "/a.html",
        "query": "q=1",
        "status": 200,
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


# Lines at the edges of what is read, for holding two readings against each other.
ODD: list[str] = [
    '{"ts":"2026-09-21T13:59:58Z","status":"200.7","size":"1e3","duration_ms":"1e3"}',
    '{"ts":"2026-09-21T13:59:58Z","status":200.0,"size":12.0,"duration_ms":" 5 "}',
    '{"ts":"2026-09-21T13:59:58Z","status":" 200 ","size":"+5","duration_ms":"NaN"}',
    '{"ts":"2026-09-21T13:59:58Z","status":99999999999,"size":99999999999999999999,"duration_ms":"1.5d"}',
    '{"ts":"2026-09-21T13:59:58Z","duration_ms":"0x1p3"}',
    '{"ts":"2026-09-21T13:59:58Z","duration_ms":".5"}',
    '{"ts":"2026-09-21T13:59:58Z","duration_ms":"5."}',
    '{"ts":"2026-09-21T13:59:58Z","duration_ms":1e400}',
    '{"ts":1.789999198E9}',
    '{"ts":"1789999198.5"}',
    '{"ts":-1789999198}',
    '{"ts":1789999198123456}',
    '{"ts":1789999198123456789}',
    '{"ts":99999999}',
    '{"ts":100000000}',
    '{"ts":99999999999}',
    '{"ts":9000000000000000001}',
    '{"ts":"2026-09-21T13:59"}',
    '{"ts":"2026-09-21T13:59Z"}',
    '{"ts":"2026-09-21T13:59:5"}',
    '{"ts":"2026-09-21 13:59:58 UTC"}',
    '{"ts":"2026-09-21 13:59:58 GMT"}',
    '{"ts":"2026-09-21 13:59:58UTC"}',
    '{"ts":"2026-09-21 13:59:58 Europe/Berlin"}',
    '{"ts":"2026-09-21 13:59:58+2"}',
    '{"ts":"2026-09-21 13:59:58+02"}',
    '{"ts":"2026-09-21 13:59:58+0200"}',
    '{"ts":"2026-09-21 13:59:58 +02:00"}',
    '{"ts":"2026-09-21 13:59:58.1234567891+02:00"}',
    '{"ts":"2026-09-21 13:59:58.+02:00"}',
    '{"ts":"2026-09-21T24:00:00Z"}',
    '{"ts":"2026-09-21T13:59:60Z"}',
    '{"ts":"2026/09/21 13:59:58,5"}',
    '{"ts":"2026-09-21T13:59:58z"}',
    '{"ts":"2026-09-21T13:59:58+18:00"}',
    '{"ts":"2026-09-21T13:59:58+18:01"}',
    '{"ts":"2026-09-21T13:59:58-19:00"}',
    '{"ts":" 2026-09-21T13:59:58Z "}',
    '{"ts":"0000-09-21T13:59:58Z"}',
    '{"ts":"9999-12-31T23:59:59-10:00"}',
    '{"ts":"2026-02-29T00:00:00Z"}',
    '{"ts":"2024-02-29T00:00:00Z"}',
    '{"ts":"","time":"2026-09-21T13:59:58Z"}',
    '{"ts":null,"time":"2026-09-21T13:59:58Z"}',
    '{"ts":"2026-09-21T13:59:58Z","ts":null}',
    '{"TS":"2026-09-21T13:59:58Z"}',
    '{"ts":"2026-09-21T13:59:58Z","a":1.50,"b":1e5,"c":true,"d":null,"e":[1, 2],"f":{"x" : 1}}',
    '{"ts":"2026-09-21T13:59:58Z","msg":"\\ud800 \\u00e9 \\ud83d\\ude00 \\n"}',
    '{"ts":"2026-09-21T13:59:58Z"} trailing',
    "{'ts':'2026-09-21T13:59:58Z'}",
    '{"ts":"2026-09-21T13:59:58Z","msg":"a\tb"}',
    '{"ts":"2026-09-21T13:59:58Z",}',
    '{"ts":"2026-09-21T13:59:58Z","x":01}',
    '{"ts":"2026-09-21T13:59:58Z","x":NaN}',
    ' {"ts":"2026-09-21T13:59:58Z"}  ',
    '\t{"ts":"2026-09-21T13:59:58Z"}\r\n',
    '{"ts":"2026-09-21T13:59:58Z","level":"ÉRR","user":"-"}',
    "{}",
    '{"ts":"2026-09-21T13:59:58Z","a":"1","a":"2"}',
    '{"ts":"2026-09-21T13:59:58Z"',
    'a=1 ts=2026-09-21T13:59:58Z b="x y" c="unclosed d=5',
    "x?y=2 ts=1",
    'a=1 ts="2026-09-21 13:59:58" =5 k==v m="a\\\\b"',
    "a=1;ts=2026-09-21T13:59:58Z",
    "@timestamp=1789999198 cpu=NaN memory=0.5",
    '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "GET /a\\" HTTP/1.1" 200 5 "-" ""',
    '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "GET /a b HTTP/1.1" 200 5 "-" "x"y',
    '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "GET /a HTTP/1.1" 200 5\r',
    '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "GET /a HTTP/1.1" 200 5 "r" "a" 0.5\n',
    '1.2.3.4 - - [21/anF/2026:13:59:58 +0000] "GET /a HTTP/1.1" 200 5',
    '1.2.3.4 - - [21/sep/2026:13:59:58 +0000] "GET /a HTTP/1.1" 200 5',
    '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "GET /a?x?y HTTP/1.1" 200 - foo',
    '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "-" 408 0',
    '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "" 408 0 "" ""',
    '<34>1 2026-09-21T13:59:58Z h p - - [a "b"]x] y',
    "<34>1 2026-09-21T13:59:58Z h p - - -msg",
    "<34>1 2026-09-21T13:59:58Z h p - - [x",
    "<999>Sep 21 13:59:58 h p[x y]: m",
    "Sep  1 13:59:58 h p[x]m",
    "Sep 21 13:59:58 h",
    "Sep 21 13:59:58 h ",
    "Sep 21 13:59:58 h\tp: x",
    "Sep 21 13:59:58 h : x",
    "Xyz 21 13:59:58 h p: x",
    "2026-09-21T13:59:58Z h kernel: x",
    "2026-09-21T13:59:58Z h foo: x",
    "2026-09-21T13:59:58Z h foo[1]: x",
    "[Mon Sep 21 13:59:58 2026] [a:b:c] x",
    "[Mon Sep 21 13:59:58 2026] [:error] x",
    "[Mon Sep 21 13:59:58.5 2026] x",
    "260921 135958 INFOX a: b",
    "260921 135958 12345678901 INFO a: b",
    "260921 135958   7 info: a.b$c*d: e",
    "2026-09-21 13:59:58.1234567890 INFO] x",
    "2026-09-21 13:59:58 Zoo",
    "2026-09-21 13:59:58 [12] INFO x",
    "2026-09-21 13:59:58 12 [INFO] x",
    "2026-09-21 13:59:58 12 x",
    "a.log 2026-09-21 13:59:58 x",
    ".log 2026-09-21 13:59:58 x",
    "2026-09-21T13:59:58.log x",
    "2026-09-21 13:59:58 -0700 WARN|y",
    "[2026-09-21 13:59:58] - warn: z",
    "2026-09-21 13:59:58 ERRORS x",
    "x 1789999198 2026.09.21 h Sep 21 06:59:58 q p[1]x: y",
    "x 178999919 2026.09.21 h y",
    "x 1789999198 2026.09.21 h 2026-09-21-1.2 a b c LEVEL m",
    "x 1789999198 2026.09.21 h",
    "    ",
    "ts= 5",
    "naïve=1",
    '日本 - - [21/Sep/2026:13:59:58 +0000] "GET /é HTTP/1.1" 200 5',
]


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
