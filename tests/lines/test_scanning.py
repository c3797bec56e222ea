"""Whatever the bytes are, the compiled scanner and the plain one make the same columns."""

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.lines.parser import EVENT_SCHEMA, LineParser, LineRules, SourceRule
from millstream.lines.scanning import COMPILED, pure
from tests.lines.samples import BAD, GOOD, ODD, records, rules

pytestmark = pytest.mark.skipif(
    COMPILED is None, reason="needs the compiled millstream.lines._scan"
)

PATTERNS = (
    "<time:%m-%d %H:%M:%S.%f> <pid> <tid> <level> <tag>: <message>",
    "[<time>] <level> [<thread...>] <program>: <message>",
    "<time:%Y%m%d-%H:%M:%S:%f>|<service>|<pid>|<message>",
    "<_> <host> <time:%s> <status> (<message...>)",
    "<time:%a %b %e %I:%M:%S %p %Z %Y> <user> <duration_ms>ms <message>",
    "<time:%d/%b/%Y:%H:%M:%S %z> é<agent...>é <message>",
    "<time:%H:%M> <cpu>",
)
PATTERN_LINES = [
    b"\xef\xbb\xbf09-21 13:59:58.123  1702  2395 D WindowManager: began\r\n",
    b"09-21 13:59:58.1 1 2 E a  : Traceback:\n  at x.y(Z:1)\n\tat z\r\n",
    b"[2026-09-21 13:59:58,5 +0200] WARN [pool 1 thread 2] a.b: c: d",
    b"[1789999198] I [] x: ",
    b"20260921-13:9:58:606|Step_LSC|30002312|x|y",
    b"134681 node-246 1789999198 1 (a (b) c)",
    b"Mon Sep  1 12:59:58 PM UTC 2026 frank 1.5ms x",
    "21/Sep/2026:15:59:58 +0200 éagent oneé x".encode(),
    b"23:59 0.5",
]
FORMATS = ("access", "json", "logfmt", "rfc3164", "rfc5424", "text")
RULES = [
    rules(),
    rules(timezone="Europe/Berlin", mask=("address", "user", "query")),
    *(rules(sources=(SourceRule("*", each),)) for each in FORMATS),
    *(rules(sources=(SourceRule("*", patterns=(each,)),)) for each in PATTERNS),
    rules(sources=(SourceRule("other", "json"), SourceRule("*", patterns=PATTERNS))),
]
LINES = [*(line.encode() for line in (*GOOD, *ODD)), *PATTERN_LINES]
# What layouts are told by, and what breaks them.
PIECES = [b" ", b"\t", b"\n", b"\r", b'"', b"\\", b"[", b"]", b":", b"=", b"{", b"}", b",", b"-"]
PIECES += [b"?", b"<", b">", b"/", b".", b"0", b"9", b"A", b"z", b"\x01", b"\xff", "é".encode()]
PIECES += [b"null", b"-Infinity", b"\\ud83d", b'"ts":', b"ts=", b".log ", b"2026-09-21T13:59:58Z"]


def assert_same(
    lines: Sequence[bytes | None], how: LineRules, *, source: bytes | None = b"web-1/log"
) -> None:
    assert COMPILED is not None
    batch = records(lines, source=source)
    names = EVENT_SCHEMA.names
    expected = LineParser(how, names, implementation=pure()).parse(batch)
    found = LineParser(how, names, implementation=COMPILED).parse(batch)
    found.validate(full=True)
    for name in names:
        assert found.column(name).equals(expected.column(name)), (
            name,
            found.column(name).diff(expected.column(name)),
        )


def mutated(random: random.Random, line: bytes) -> bytes:
    data = bytearray(line)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(data) + 1)
        behind = min(len(data), at + random.randrange(12))
        match random.randrange(5):
            case 0:
                del data[at:]
            case 1:
                del data[at:behind]
            case 2:
                data[at:behind] = random.choice(PIECES)
            case 3:
                data[at:at] = random.choice(PIECES)
            case 4:
                data[at:at] = data[at:behind]
    return bytes(data)


@given(st.lists(st.none() | st.binary(max_size=60), max_size=9), st.sampled_from(RULES))
def test_any_bytes(lines: list[bytes | None], how: LineRules) -> None:
    assert_same(lines, how)


@given(st.lists(st.text(max_size=40), max_size=9), st.sampled_from(RULES))
def test_any_text(lines: list[str], how: LineRules) -> None:
    assert_same([line.encode() for line in lines], how)


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=20), max_size=5), st.sampled_from(RULES))
def test_any_pieces(lines: list[list[bytes]], how: LineRules) -> None:
    assert_same([b"".join(pieces) for pieces in lines], how)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(RULES))
def test_lines_that_were_damaged(seed: int, how: LineRules) -> None:
    draw = random.Random(seed)
    assert_same([mutated(draw, draw.choice(LINES)) for _ in range(100)], how)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_lines_of_patterns_that_were_damaged(seed: int) -> None:
    draw = random.Random(seed)
    lines = [mutated(draw, draw.choice(PATTERN_LINES)) for _ in range(100)]
    assert_same(lines, RULES[-1])
    assert_same(lines, rules(sources=(SourceRule("*", patterns=(draw.choice(PATTERNS),)),)))


pattern_literals = st.text(st.sampled_from(" :[]|-ax"), min_size=1, max_size=3)
pattern_fields = st.sampled_from(["<_>", "<_...>", "<{0}>", "<{0}...>"])


@given(
    st.lists(st.tuples(pattern_literals, pattern_fields), max_size=5),
    st.sampled_from(["", " ", "]", "x"]),
    st.lists(st.text(st.sampled_from(" \t\n:[]|-axé"), max_size=20), min_size=1, max_size=9),
)
def test_any_pattern(parts: list[tuple[str, str]], last: str, lines: list[str]) -> None:
    fields = [literal + field.format(f"k{at}") for at, (literal, field) in enumerate(parts)]
    pattern = "<time:%H:%M>" + "".join(fields) + last
    how = rules(sources=(SourceRule("*", patterns=(pattern,)),))
    assert_same([f"23:59{line}".encode() for line in lines], how)


@given(
    st.sampled_from(["%Y-%m-%d %H:%M:%S.%f", "%y%m%d%I%p%z", "%b %e %H:%M %Z", "%s", "%H:%M:%S"]),
    st.lists(st.text(st.sampled_from("0129-:. +APMZUTCSep"), max_size=30), min_size=1, max_size=9),
)
def test_any_time_of_a_pattern(time_format: str, lines: list[str]) -> None:
    how = rules(sources=(SourceRule("*", patterns=(f"<time:{time_format}><message>",)),))
    assert_same([line.encode() for line in lines], how)
    assert_same([f"Sep 1 {line}".encode() for line in lines], how)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["2026-09-21T13:59:58Z", "-", "\ud800", "\x01"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
json_names = st.sampled_from(["ts", "time", "user", "cpu", "level", "", "é"]) | st.text(max_size=4)


@given(st.dictionaries(json_names, json_values), st.booleans(), st.sampled_from([None, 1]))
def test_any_json(value: dict[str, object], is_ascii: bool, indent: int | None) -> None:
    import json

    line = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    assert_same([line.encode(errors="replace")], rules())


def test_every_sample_for_every_rule() -> None:
    for how in RULES:
        assert_same([*LINES, *BAD, None], how)
        assert_same(LINES, how, source=None)


def test_long_lines_of_one_piece() -> None:
    """No step goes back over what it has seen: 64 KB of anything take no time."""
    lines = [(piece * 65_536)[:65_536] for piece in PIECES]
    starts = [b'{"a":', b'{"a":[', b"a=", b'a="', b"<1>1 ", b"<1>1 a b c d e [", b"a b c [21/"]
    starts += [b'1.2.3.4 - - [21/Sep/2026:13:59:58 +0000] "', b"Sep 21 13:59:58 h p[", b"a.log"]
    lines += [start + (piece * 65_000)[:65_000] for start in starts for piece in PIECES[:14]]
    assert_same(lines, rules())
    wide = [b"23:59 " + (piece * 65_000)[:65_000] for piece in (b" ", b"] ", b"a")]
    for pattern in ("<time:%H:%M> <a...> x <b>", "<time:%H:%M> <a...>] y"):
        assert_same(wide, rules(sources=(SourceRule("*", patterns=(pattern,)),)))


@pytest.mark.parametrize("count", [33, 500, 12_000])
def test_a_line_with_many_fields_some_of_them_repeated(count: int) -> None:
    names = [f"k{number % (count * 2 // 3):x}" for number in range(count)]
    fields = " ".join(f"{name}={place:x}" for place, name in enumerate(names))
    pairs = ",".join(f'"{name}":{place}' for place, name in enumerate(names[:4000]))
    assert_same([f"ts=1789999198 {fields}"[:65_000].encode(), f"{{{pairs}}}".encode()], rules())


@pytest.mark.parametrize("depth", [1, 198, 199, 200, 201, 5_000])
def test_nesting_has_a_depth_that_both_know(depth: int) -> None:
    ts = b'"ts":1789999198'
    arrays = b"{" + ts + b',"a":' + b"[" * depth + b"]" * depth + b"}"
    objects = b"{" + ts + b"," + b'"a":{' * depth + b"}" * depth + b"}"
    mixed = b"{" + ts + b',"a":' + b'[{"a":' * (depth // 2) + b"1" + b"}]" * (depth // 2) + b"}"
    assert_same([arrays, objects, mixed], rules())


def test_slices_of_a_batch_give_slices_of_the_events() -> None:
    assert COMPILED is not None
    how = rules(
        sources=(SourceRule("web-1/*", function="tests.pipeline.custom_parsers:parse_pipes"),)
    )
    pipes = [b"2026-09-21T13:59:58Z|cart|%d" % status for status in range(200, 230)]
    for using, lines in ((rules(), [*LINES, None, b"\xff"]), (how, [*pipes, None, b"\xff"])):
        batch = records(lines)
        parser = LineParser(using, EVENT_SCHEMA.names, implementation=COMPILED)
        whole = parser.parse(batch)
        for start in range(len(lines)):
            part = parser.parse(batch.slice(start, 9))
            part.validate(full=True)
            assert part.equals(whole.slice(start, 9))


def test_a_scanner_goes_on_after_a_batch_that_it_refused() -> None:
    assert COMPILED is not None
    scanner = COMPILED.Scanner(["host", "message", "fields"], ())
    values = pa.array([b"2026-09-21T13:59:58Z a", b"k=v"], pa.binary())
    sources, times = pa.array(["h/x", "h/y"]), pa.array([0, 0], pa.int64())
    auto = np.full(2, -1, np.int8)
    damaged = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(np.array([0, 9, 7], np.int32)), pa.py_buffer(b"x" * 9)]
    )
    with pytest.raises(ValueError, match="damaged"):
        scanner.scan(damaged, sources, times, auto, None)
    with pytest.raises(ValueError, match="length"):
        scanner.scan(values, sources, times, auto[:1], None)
    found = scanner.scan(values, sources, times, auto, None)
    assert found["message"].to_pylist() == ["a", None]
    assert found["fields"].to_pylist() == [None, [("k", "v")]]


def test_faults_are_told_without_reading_lines() -> None:
    assert COMPILED is not None
    values = pa.array([None, b"", b"x" * 65_537, b"\xff", b"\x01", b"x"], pa.binary())
    for implementation in (pure(), COMPILED):
        assert implementation.Scanner((), ()).faults(values).tolist() == [1, 1, 2, 3, 4, 0]
        assert implementation.Scanner((), ()).faults(values.slice(2, 2)).tolist() == [2, 3]
