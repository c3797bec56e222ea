"""Tables for people."""

import json

import pytest

from millstream.cli.output import (
    JsonValue,
    counted,
    escaped,
    json_text,
    print_error_json,
    print_json,
    print_line_json,
    print_table,
    terminal_bytes,
)
from tests.support.terminal import HOSTILE, obeyed_by_terminals


def test_numbers_align_right_and_text_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "COUNT"], [("a", 7), ("longer", 1234)])
    assert capsys.readouterr().out.splitlines() == [
        "NAME    COUNT",
        "a           7",
        "longer   1234",
    ]


def test_a_table_without_rows_is_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "COUNT"], [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


def test_one_is_singular_and_large_numbers_are_grouped() -> None:
    assert [counted(n, "record") for n in (0, 1, 2000)] == [
        "0 records",
        "1 record",
        "2,000 records",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain über 東京", "plain über 東京"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("bell\x07 null\0 del\x7f", "bell\\x07 null\\x00 del\\x7f"),
        ("reversed \u202etxt.exe", "reversed \\u202etxt.exe"),
        ("half \ud800", "half \\ud800"),
        ("two\nlines\tapart", "two\nlines\tapart"),
        ("of\r\nWindows", "of\r\nWindows"),
        ("over\rwritten\r", "over\\rwritten\\r"),
        ("8 bits \x9b2J", "8 bits \\x9b2J"),
    ],
)
def test_what_a_terminal_would_act_upon_is_spelled_out(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_name_stays_in_its_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "LAG"], [["one\ntwo\x1b[31m", 3], ["plain", 4]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME              LAG",
        "one\\ntwo\\x1b[31m    3",
        "plain               4",
    ]


def test_a_part_of_a_record_is_spelled_out_byte_by_byte() -> None:
    assert terminal_bytes("über\n".encode()) == "über\n".encode()
    assert terminal_bytes(b"\x9b2J\xc2\x9b\x1b") == b"\\x9b2J\\x9b\\x1b"


def test_json_stays_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    value: JsonValue = {HOSTILE: [HOSTILE, "\U000e0001 tag", "half \ud800", "über\u2028"], "n": 1}
    assert json.loads(json_text(value)) == value
    assert json.loads(json_text(value, indent=2)) == value
    assert obeyed_by_terminals(json_text(value)) == ""
    assert "über" in json_text(value)
    print_json(value)
    print_line_json(value)
    print_error_json(HOSTILE, 3)
    printed = capsys.readouterr()
    assert obeyed_by_terminals(printed.out + printed.err) == ""
    *document, line = printed.out.splitlines()
    assert json.loads("\n".join(document)) == json.loads(line) == value
    assert json.loads(printed.err) == {"error": {"message": HOSTILE, "exit_code": 3}}
