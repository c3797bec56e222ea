"""Which records `consume` prints."""

import pytest

from millstream.cli.record_filter import Filter, compile_filter
from millstream.cli.record_text import TextRecord


def record(
    key: bytes | None = None, value: bytes | None = None, **headers: bytes | None
) -> TextRecord:
    return TextRecord("t", 0, 0, 0, key, value, list(headers.items()))


def only(*, anywhere: str = "", key: str = "", value: str = "", header: str = "") -> Filter:
    found = compile_filter(
        anywhere=[anywhere] if anywhere else [],
        keys=[key] if key else [],
        values=[value] if value else [],
        headers=[header] if header else [],
    )
    assert found is not None
    return found


def test_without_a_pattern_there_is_no_filter() -> None:
    assert compile_filter(anywhere=[], keys=[], values=[], headers=[]) is None


def test_a_pattern_is_searched_in_its_part_only() -> None:
    assert only(key="^al")(record(key=b"alice"))
    assert not only(key="al")(record(value=b"alice"))
    assert only(value="li")(record(value=b"alice"))
    assert not only(value="li")(record())


def test_anywhere_is_key_value_and_headers() -> None:
    matches = only(anywhere="x+")
    assert matches(record(key=b"x"))
    assert matches(record(value=b"xx"))
    assert matches(record(trace=b"x"))
    assert not matches(record(b"a", b"b", x=None))


def test_a_header_must_exist_or_match() -> None:
    assert only(header="trace")(record(trace=None))
    assert not only(header="trace")(record(other=b"1"))
    assert only(header="trace=^4")(record(trace=b"42"))
    assert not only(header="trace=^4")(record(trace=None))


def test_all_patterns_must_match() -> None:
    matches = only(key="a", value="b")
    assert matches(record(b"a", b"b"))
    assert not matches(record(b"a", b"c"))


def test_a_bad_pattern_is_named() -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        only(key="(")
    with pytest.raises(ValueError, match="NAME or NAME=PATTERN"):
        only(header="=x")
