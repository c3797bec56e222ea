"""Records as text: formats and JSON lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.record_text import (
    TextRecord,
    compile_format,
    from_json_line,
    to_json_line,
    unescaped,
)


def record(
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: list[tuple[str, bytes | None]] | None = None,
) -> TextRecord:
    return TextRecord(
        topic="orders",
        partition=2,
        offset=7,
        timestamp_ms=1_769_860_800_250,
        key=key,
        value=value,
        headers=headers or [],
    )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%v\n", b"v\n"),
        (r"%s", b"v"),
        (r"%t/%p/%o", b"orders/2/7"),
        (r"%k\t%v", b"k\tv"),
        (r"%K %S", b"1 1"),
        (r"%T", b"1769860800250"),
        (r"%d", b"2026-01-31T12:00:00.250Z"),
        (r"100%% \x41\\\0", b"100% A\\\0"),
        (r"", b""),
    ],
)
def test_a_format_prints_fields_and_escapes(text: str, printed: bytes) -> None:
    assert compile_format(text)(record()) == printed


def test_null_prints_as_nothing_and_its_length_as_minus_one() -> None:
    assert compile_format("%k|%v|%K|%S")(record(key=None, value=None)) == b"||-1|-1"


def test_headers_print_in_order_with_null_named() -> None:
    printed = compile_format("%h")(record(headers=[("a", b"1"), ("b", None), ("a", b"")]))
    assert printed == b"a=1,b=NULL,a="


def test_a_timestamp_beyond_the_calendar_prints_as_a_number() -> None:
    far = record()
    far.timestamp_ms = 2**63 - 1
    assert compile_format("%d")(far) == b"9223372036854775807"


@pytest.mark.parametrize("text", ["%q", "100%", "\\", r"\q", r"\x4"])
def test_a_wrong_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        compile_format(text)


optional_bytes = st.none() | st.binary(max_size=50)


@given(
    key=optional_bytes,
    value=optional_bytes,
    headers=st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=4),
)
def test_a_json_line_reads_back_to_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = to_json_line(record(key=key, value=value, headers=headers))
    assert line.count(b"\n") == 1
    back = from_json_line(line)
    assert (back.key, back.value, back.headers) == (key, value, headers)
    assert (back.timestamp_ms, back.partition) == (1_769_860_800_250, 2)


def test_a_value_that_is_json_is_sent_as_json_text() -> None:
    assert from_json_line(b'{"value": {"a": [1, "\xc3\xa9"]}}').value == '{"a": [1, "é"]}'.encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"headers": {"a": 1}}',
        b'{"headers": [{"value": "1"}]}',
        b'{"partition": "0"}',
        b'{"partition": -1}',
        b'{"timestamp": 1.5}',
        b'{"value_base64": "!"}',
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        from_json_line(line)


def test_escapes_of_an_option_become_bytes() -> None:
    assert unescaped(r"a\t\x01\\n") == b"a\t\x01\\n"
    assert unescaped("ä%") == "ä%".encode()
    with pytest.raises(ValueError, match="is not an escape"):
        unescaped("\\q")
    with pytest.raises(ValueError, match="is not an escape"):
        unescaped("end\\")
