"""Tables for people."""

import pytest

from millstream.cli.output import counted, print_table


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
