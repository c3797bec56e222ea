"""Every format, and everything that is none, through Spark as the pipeline runs it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.spec import Spec
from tests.pipeline.conftest import MakeSpec

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.slow

NOW = datetime(2026, 9, 21, 14, 0, 0, tzinfo=UTC)
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"


def parse(
    spark: "SparkSession",
    spec: Spec,
    lines: Sequence[str | bytes],
    *,
    source: str = "web-1/log",
    now: datetime = NOW,
) -> "list[Row]":
    from millstream.pipeline.parsing import parse_events

    rows = [
        (
            source.encode(),
            bytearray(line if isinstance(line, bytes) else line.encode()),
            *("logs", 0, offset, now),
        )
        for offset, line in enumerate(lines)
    ]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    return parse_events(frame, spec).orderBy("offset").collect()


def utc(row: "Row") -> datetime:
    # Rows have times without a zone, in that of the machine.
    return row.event_time.astimezone(UTC)


GOOD = {
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


def test_every_format_is_recognised_and_read(spark: "SparkSession", make_spec: MakeSpec) -> None:
    rows = parse(spark, make_spec(), list(GOOD))
    for row, (line, expected) in zip(rows, GOOD.items(), strict=True):
        assert row.problem is None, (line, row.detail)
        assert {name: row[name] for name in expected} == expected, line
        assert utc(row) == NOW - timedelta(seconds=2), line
    assert rows[4].fields["a"] == '{"b":[1]}'
    assert rows[8].fields["state"] == 'all "good"'
    assert rows[8].fields["cpu"] == "0.6"


BAD = {
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


def test_what_cannot_be_read_is_told_with_its_reason(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    rows = parse(spark, make_spec(), list(BAD))
    for row, (line, detail) in zip(rows, BAD.items(), strict=True):
        assert row.problem == "unparsable", line[:80]
        assert row.detail == detail, line[:80]
        assert bytes(row.value) == line


def test_event_times_are_classed_by_their_own_record(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    def line(shift: timedelta) -> str:
        return f"{(NOW + shift).isoformat()} INFO x"

    shifts = {
        timedelta(minutes=1): None,
        timedelta(minutes=1, microseconds=1): "ahead",
        timedelta(minutes=-10): None,
        timedelta(minutes=-10, microseconds=-1): "late",
        timedelta(days=25_000): "ahead",
        timedelta(days=-5_000): "late",
    }
    rows = parse(spark, make_spec(), [line(shift) for shift in shifts])
    assert [row.problem for row in rows] == list(shifts.values())


def test_a_time_without_a_year_is_of_the_year_nearest_to_the_record(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    start = datetime(2027, 1, 1, 0, 0, 30, tzinfo=UTC)
    [row] = parse(spark, make_spec(), ["Dec 31 23:59:59 db-1 su: bye"], now=start)
    assert utc(row) == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    end = datetime(2026, 12, 31, 23, 59, 30, tzinfo=UTC)
    [row] = parse(spark, make_spec(), ["Jan  1 00:00:01 db-1 su: hi"], now=end)
    assert utc(row) == datetime(2027, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_a_time_without_a_zone_is_in_the_declared_one(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    from millstream.pipeline.session import prepare

    spec = make_spec("timezone = 'Europe/Berlin'")
    prepare(spark, spec)
    [row] = parse(spark, spec, ["2026-09-21 15:59:58 INFO x"])
    assert row.event_time.astimezone(UTC) == NOW - timedelta(seconds=2)


def test_a_format_that_is_given_is_used_for_its_sources_only(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    spec = make_spec("[[parse.sources]]\nmatch = 'nginx/*'\nformat = 'access'")
    line = "2026-09-21T13:59:58Z plain"
    [row] = parse(spark, spec, [line], source="nginx/1")
    assert (row.problem, row.detail) == ("unparsable", "no time as access")
    [row] = parse(spark, spec, [line], source="other/1")
    assert row.problem is None


def test_a_source_said_to_be_text_may_be_any_kind_of_text(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    spec = make_spec("[[parse.sources]]\nmatch = '*'\nformat = 'text'")
    rows = parse(
        spark,
        spec,
        ["26/09/21 13:59:58 INFO x", "2026-09-21T13:59:58Z x", '{"ts":"2026-09-21T13:59:58Z"}'],
    )
    assert [row.problem for row in rows] == [None, None, "unparsable"]


def test_a_log_that_changes_its_format_is_read_on(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    lines: list[str | bytes] = ["2026-09-21T13:59:58Z INFO as text"] * 3
    lines += [b"\x00\x01\x02 half a line", '{"ts":"2026-09-21T13:59:58Z","level":"info"}']
    lines += ["<34>Sep 21 13:59:58 db-1 su[77]: and as syslog"]
    rows = parse(spark, make_spec(), lines)
    assert [row.format for row in rows] == ["text"] * 3 + ["unknown", "json", "rfc3164"]
    assert [row.problem for row in rows] == [None] * 3 + ["unparsable", None, None]


def test_a_function_of_the_user_parses_its_sources(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    spec = make_spec(
        """
        [[parse.sources]]
        match = "*/pipes"
        function = "tests.pipeline.custom_parsers:parse_pipes"
        [[parse.sources]]
        match = "*/never"
        function = "tests.pipeline.custom_parsers:parse_never"
        """
    )
    lines = ["2026-09-21T13:59:58Z|cart|503", "nothing", '{"ts":"2026-09-21T13:59:58Z"}']
    good, bad, other = parse(spark, spec, lines, source="a/pipes")
    assert (good.format, good.service, good.status, good.problem) == ("custom", "cart", 503, None)
    assert utc(good) == NOW - timedelta(seconds=2)
    assert (bad.problem, bad.detail) == ("unparsable", "no time as custom")
    assert other.problem == "unparsable"
    assert [row.problem for row in parse(spark, spec, lines, source="a/never")] == [
        "unparsable"
    ] * 3
    [row] = parse(spark, spec, lines[2:], source="a/else")
    assert (row.format, row.problem) == ("json", None)


def test_masking_leaves_nothing_recognisable_and_visitors_countable(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    spec = make_spec("[parse]\nmask = ['address', 'user', 'query']\nsalt = 's'")
    lines = [
        '203.0.113.77 - frank [21/Sep/2026:13:59:58 +0000] "GET /a?q=secret HTTP/1.1" 200 1',
        '203.0.113.78 - frank [21/Sep/2026:13:59:58 +0000] "GET /a HTTP/1.1" 200 1',
        "203.0.113.79 gone wrong /x?q=secret",
        '203.0.113.77 - frank [21/Sep/2029:13:59:58 +0000] "GET /a?q=secret HTTP/1.1" 200 1',
        '2001:db8:1:2::77 - - [21/Sep/2026:13:59:58 +0000] "GET / HTTP/1.1" 200 1',
    ]
    rows = parse(spark, spec, lines)
    said = str([row.asDict() for row in rows])
    for secret in ("113.77", "113.78", "113.79", "frank", "secret", "::77"):
        assert secret not in said
    assert rows[0].address == "203.0.113.0"
    assert rows[4].address == "2001:db8:1::"
    assert rows[0].visitor == rows[1].visitor
    assert rows[0].visitor is not None
    assert [row.problem for row in rows] == [None, None, "unparsable", "ahead", None]
