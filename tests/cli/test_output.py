"""Tables for people."""

import pytest

from millstream.cli.output import counted, escaped, print_table


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
