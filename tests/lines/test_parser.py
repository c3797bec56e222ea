"""Every format, and everything that is none, by both scanners."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from millstream.lines.parser import EVENT_SCHEMA, LineParser, LineRules, SourceRule
from millstream.lines.scanning import COMPILED, Implementation, pure
from tests.lines.samples import BAD, GOOD, NOW, records, rules

BOTH = [pytest.param(pure(), id="pure")]
if COMPILED is not None:
    BOTH.append(pytest.param(COMPILED, id="compiled"))
pytestmark = pytest.mark.parametrize("scanner", BOTH)


def parse(
    scanner: Implementation,
    lines: Sequence[str | bytes | None],
    how: LineRules | None = None,
    **given: Any,
) -> list[SimpleNamespace]:
    parser = LineParser(how or rules(), EVENT_SCHEMA.names, implementation=scanner)
    events = parser.parse(records(lines, **given))
    events.validate(full=True)
    assert events.schema.equals(EVENT_SCHEMA)
    return [SimpleNamespace(**row) for row in events.to_pylist()]


def test_every_format_is_recognised_and_read(scanner: Implementation) -> None:
    rows = parse(scanner, list(GOOD))
    for row, (line, expected) in zip(rows, GOOD.items(), strict=True):
        assert row.problem is None, (line, row.detail)
        assert {name: getattr(row, name) for name in expected} == expected, line
        assert row.event_time == NOW - timedelta(seconds=2), line
    assert dict(rows[4].fields)["a"] == '{"b":[1]}'
    assert dict(rows[8].fields)["state"] == 'all "good"'
    assert dict(rows[8].fields)["cpu"] == "0.6"
    assert rows[8].gauges == [0.6, None]
    assert rows[0].gauges == [None, None]


def test_what_cannot_be_read_is_told_with_its_reason(scanner: Implementation) -> None:
    rows = parse(scanner, list(BAD))
    for row, (line, detail) in zip(rows, BAD.items(), strict=True):
        assert (row.problem, row.detail) == ("unparsable", detail), line[:80]
        assert row.value == line


def test_event_times_are_classed_by_their_own_record(scanner: Implementation) -> None:
    shifts = {
        timedelta(minutes=1): None,
        timedelta(minutes=1, microseconds=1): "ahead",
        timedelta(minutes=-10): None,
        timedelta(minutes=-10, microseconds=-1): "late",
        timedelta(days=25_000): "ahead",
        timedelta(days=-5_000): "late",
    }
    rows = parse(scanner, [f"{(NOW + shift).isoformat()} INFO x" for shift in shifts])
    assert [row.problem for row in rows] == list(shifts.values())


def test_a_time_without_a_year_is_of_the_year_nearest_to_the_record(
    scanner: Implementation,
) -> None:
    start = datetime(2027, 1, 1, 0, 0, 30, tzinfo=UTC)
    [row] = parse(scanner, ["Dec 31 23:59:59 db-1 su: bye"], now=start)
    assert row.event_time == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    end = datetime(2026, 12, 31, 23, 59, 30, tzinfo=UTC)
    [row] = parse(scanner, ["Jan  1 00:00:01 db-1 su: hi"], now=end)
    assert row.event_time == datetime(2027, 1, 1, 0, 0, 1, tzinfo=UTC)
    # Of the record's year in the declared zone, where it has begun.
    [row] = parse(scanner, ["Jul  1 00:00:01 db-1 su: hi"], rules(timezone="Asia/Tokyo"), now=end)
    assert row.event_time == datetime(2027, 6, 30, 15, 0, 1, tzinfo=UTC)
    [row] = parse(scanner, ["Jan  1 00:00:01 db-1 su: hi"], now=None)
    assert row.detail == "no time as rfc3164"


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ("2026-09-21 15:59:58", "2026-09-21 13:59:58"),
        ("2026-01-21 15:59:58", "2026-01-21 14:59:58"),
        # An hour that does not exist, and one that exists twice.
        ("2026-03-29 02:30:00", "2026-03-29 01:30:00"),
        ("2026-10-25 02:30:00", "2026-10-25 00:30:00"),
        ("2026-10-25 03:30:00", "2026-10-25 02:30:00"),
    ],
)
def test_a_time_without_a_zone_is_in_the_declared_one(
    scanner: Implementation, local: str, utc: str
) -> None:
    [row] = parse(scanner, [f"{local} INFO x"], rules(timezone="Europe/Berlin"))
    assert row.event_time == datetime.fromisoformat(f"{utc}+00:00")


def test_a_format_that_is_given_is_used_for_its_sources_only(scanner: Implementation) -> None:
    how = rules(sources=(SourceRule("nginx/*", "auto"), SourceRule("ng?nx/*", "access")))
    line = "2026-09-21T13:59:58Z plain"
    [row] = parse(scanner, [line], how, source="nginx/1")
    assert (row.problem, row.detail) == ("unparsable", "no time as access")
    [row] = parse(scanner, [line], how, source="other/1")
    assert row.problem is None


def test_a_source_said_to_be_text_may_be_any_kind_of_text(scanner: Implementation) -> None:
    lines = ["26/09/21 13:59:58 INFO x", "2026-09-21T13:59:58Z x", '{"ts":"2026-09-21T13:59:58Z"}']
    rows = parse(scanner, lines, rules(sources=(SourceRule("*", "text"),)))
    assert [row.problem for row in rows] == [None, None, "unparsable"]


def test_a_function_of_the_user_parses_its_sources(scanner: Implementation) -> None:
    how = rules(
        sources=(
            SourceRule("*/pipes", function="tests.pipeline.custom_parsers:parse_pipes"),
            SourceRule("*/never", function="tests.pipeline.custom_parsers:parse_never"),
        )
    )
    lines = ["2026-09-21T13:59:58Z|cart|503 ", "nothing", '{"ts":"2026-09-21T13:59:58Z"}', b"\xff"]
    good, bad, other, faulty = parse(scanner, lines, how, source="a/pipes")
    assert (good.format, good.service, good.status, good.problem) == ("custom", "cart", 503, None)
    assert good.event_time == NOW - timedelta(seconds=2)
    assert dict(good.fields)["status"] == "503"
    assert (bad.problem, bad.detail) == ("unparsable", "no time as custom")
    assert other.problem == "unparsable"
    assert (faulty.format, faulty.detail) == ("custom", "not UTF-8")
    rows = parse(scanner, lines, how, source="a/never")
    assert [row.problem for row in rows] == ["unparsable"] * 4
    [row] = parse(scanner, lines[2:3], how, source="a/else")
    assert (row.format, row.problem) == ("json", None)


def test_masking_leaves_nothing_recognisable_and_visitors_countable(
    scanner: Implementation,
) -> None:
    lines = [
        '203.0.113.77 - frank [21/Sep/2026:13:59:58 +0000] "GET /a?q=secret HTTP/1.1" 200 1',
        '203.0.113.78 - frank [21/Sep/2026:13:59:58 +0000] "GET /a HTTP/1.1" 200 1',
        "203.0.113.79 gone wrong /x?q=secret",
        '203.0.113.77 - frank [21/Sep/2029:13:59:58 +0000] "GET /a?q=secret HTTP/1.1" 200 1',
        '2001:db8:1:2::77 - - [21/Sep/2026:13:59:58 +0000] "GET / HTTP/1.1" 200 1',
        "203.0.113.79 " + "é" * 70_000,
        b"203.0.113.79 " + b"\xff" * 70_000,
    ]
    rows = parse(scanner, lines, rules(mask=("address", "user", "query")))
    said = str(rows)
    for secret in ("113.77", "113.78", "113.79", "frank", "secret", "::77"):
        assert secret not in said
    assert rows[0].address == "203.0.113.0"
    assert rows[4].address == "2001:db8:1::"
    assert rows[0].visitor == rows[1].visitor
    assert rows[0].visitor is not None
    assert rows[2].value == b"203.0.113.0 gone wrong /x?"
    assert rows[5].value is not None
    assert rows[6].value is None
    assert [row.problem for row in rows] == [None, None, "unparsable", "ahead", None] + [
        "unparsable"
    ] * 2


ACCESS = '1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "%s" 200 5'
EDGES: dict[str, dict[str, Any]] = {
    ACCESS % r"GET /a\" HTTP/1.1": {"format": "common", "method": None, "status": 200},
    ACCESS % "GET /a b HTTP/1.1": {"method": None, "path": None, "status": 200},
    ACCESS % "GET /a?b?c": {"path": "/a", "query": "b?c"},
    ACCESS % "GET /a HTTP/1.1" + "\r": {"format": "common", "size_bytes": 5},
    ACCESS % "GET /a HTTP/1.1" + ' "" ""': {"format": "combined", "agent": None},
    ACCESS % "GET /a HTTP/1.1" + ' "r" "a"b': {"format": "common", "referrer": None},
    ACCESS % "GET /a HTTP/1.1" + ' "r" "a" 0.5\r\n': {"format": "combined", "duration_ms": 500.0},
    "1.2.3.4 - ann [21/Sep/2026": {"format": "access", "address": None, "visitor": None},
    '{"ts":1789999198,"cpu":NaN}': {"problem": None, "gauges": [None, None]},
    '{"ts":1789999198} and more': {"format": "json", "detail": "no time as json"},
    '{"ts":1789999198,"user":"ann"': {"user": None, "fields": None},
    '{"ts":"","time":1789999198}': {"detail": "no time as json"},
    '{"ts":null,"time":1789999198}': {"problem": None},
    '{"ts":"9999-12-31T23:59:59-10:00"}': {"event_time": None, "problem": "unparsable"},
    '{"ts":1789999198,"level":"É WARN"}': {"level": "É warn"},
    'ts=1789999198 user=a user="b\\"c" host=-': {"user": 'b"c', "host": "web-1"},
    "<999>Sep 21 13:59:58 h p[x y]: m": {"level": "debug", "program": "p", "message": "m"},
    "Sep 21 13:59:58 h p[x: m": {"program": None, "message": "p[x: m"},
    "2026-09-21 13:59:58 12 [WARN]: m": {"level": "warn", "message": "m"},
    "2026-09-21 13:59:58 12 WARNED m": {"level": None, "message": "12 WARNED m"},
}


def test_lines_at_the_edges(scanner: Implementation) -> None:
    for row, (line, expected) in zip(parse(scanner, list(EDGES)), EDGES.items(), strict=True):
        assert {name: getattr(row, name) for name in expected} == expected, line


def test_records_without_key_or_value_and_with_a_strange_key(scanner: Implementation) -> None:
    [row] = parse(scanner, [None], source=None)
    assert (row.source, row.host, row.detail) == ("logs", "logs", "empty")
    [row] = parse(scanner, ["2026-09-21T13:59:58Z x"], source=b"a\xff/b")
    assert (row.source, row.host) == ("a\ufffd/b", "a\ufffd")


def test_a_record_of_no_source_at_all(scanner: Implementation) -> None:
    batch = records(["ts=1789999198 a=b"], source=None)
    batch = batch.set_column(2, "topic", pa.nulls(1, pa.string()))
    how = rules(sources=(SourceRule("x", "json"),))
    parser = LineParser(how, ["source", "host", "format"], implementation=scanner)
    assert parser.parse(batch).to_pylist() == [{"source": "", "host": "", "format": "logfmt"}]


def test_no_records_give_no_events(scanner: Implementation) -> None:
    assert parse(scanner, []) == []


def test_only_the_columns_asked_for_are_made_in_that_order(scanner: Implementation) -> None:
    parser = LineParser(rules(), ["problem", "status", "offset"], implementation=scanner)
    events = parser.parse(records(list(GOOD)).slice(3, 2))
    assert events.schema.names == ["problem", "status", "offset"]
    assert events.to_pydict() == {"problem": [None] * 2, "status": [400, 500], "offset": [3, 4]}
    assert parser.schema == events.schema


def test_rules_travel_as_text(scanner: Implementation) -> None:
    how = rules(sources=(SourceRule("a*", "json"), SourceRule("b?", function="m:f")))
    assert LineRules.from_json(how.to_json()) == how


def test_columns_of_other_types_are_taken_too(scanner: Implementation) -> None:
    batch = records(["2026-09-21T13:59:58Z x"])
    changed = batch.set_column(1, "value", batch.column("value").cast(pa.large_binary()))
    parser = LineParser(rules(), ["message"], implementation=scanner)
    assert parser.parse(changed).to_pydict() == {"message": ["x"]}
