"""Which lines are JSON, and what their fields are as text."""

import pytest

from millstream.lines._json_pure import pairs_of


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ("{}", []),
        (' { "a" : "b" , "c" : null } \r\n', [("a", "b"), ("c", None)]),
        (
            '{"a":1.50,"b":1e5,"c":true,"d":-0}',
            [("a", "1.50"), ("b", "1e5"), ("c", "true"), ("d", "-0")],
        ),
        ('{"a":[1, 2],"b":{"x" : "}"}}', [("a", "[1, 2]"), ("b", '{"x" : "}"}')]),
        ('{"a":1,"a":"2"}', [("a", "1"), ("a", "2")]),
        (r'{"\u00e9\n":"\ud83d\ude00 \ud83d \"\\\/"}', [("é\n", '😀 \ufffd "\\/')]),
        # Not JSON, but written by some.
        ('{"a":NaN,"b":-Infinity}', [("a", "NaN"), ("b", "-Infinity")]),
    ],
)
def test_fields_are_text_as_it_was_written(line: str, pairs: list[tuple[str, str | None]]) -> None:
    assert pairs_of(line) == pairs


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", '"a"', "{'a':1}", '{"a"}', '{"a":}', '{"a":1,}', '{"a":1}}', '{"a":1} x']
    + ['{"a":01}', '{"a":1.}', '{"a":+1}', '{"a":tru}', '{"a":"\t"}', r'{"a":"\x"}', '{"a":"b}']
    + [r'{"a":"\u12"}', '{"a":[1,]}', '{"a":{"b"}}', '{"a":[}', "{a:1}", '{"a":nul'],
)
def test_what_is_not_one_object_has_no_fields(line: str) -> None:
    assert pairs_of(line) is None
