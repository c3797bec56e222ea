"""How a plain line becomes a record. Sending is in test_commands."""

import pytest

from millstream.cli.produce import LineRules


def rules(
    *, key: bytes | None = None, separator: bytes | None = None, empty_is_null: bool = False
) -> LineRules:
    return LineRules(
        key=key,
        key_separator=separator,
        headers=[("h", b"1")],
        partition=3,
        empty_is_null=empty_is_null,
    )


def test_a_line_is_a_value_with_the_given_key_headers_and_partition() -> None:
    record = rules(key=b"k").parse(b"a:b")
    assert (record.key, record.value) == (b"k", b"a:b")
    assert (record.headers, record.partition) == ([("h", b"1")], 3)


def test_a_separator_splits_the_line_once() -> None:
    record = rules(separator=b"::").parse(b"a::b::c")
    assert (record.key, record.value) == (b"a", b"b::c")


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="between key and value"):
        rules(separator=b":").parse(b"no key here")


def test_empty_stays_empty_unless_it_is_to_be_null() -> None:
    kept = rules(separator=b":").parse(b":")
    assert (kept.key, kept.value) == (b"", b"")
    nulled = rules(separator=b":", empty_is_null=True).parse(b":")
    assert (nulled.key, nulled.value) == (None, None)
