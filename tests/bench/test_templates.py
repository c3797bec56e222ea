"""Measuring templates: the measure itself, and that every pattern is one."""

from pathlib import Path

import pytest

from bench.templates import PATTERNS, DataSet, grouping_accuracy, parsed_share, read_sets, table
from millstream.lines.line_patterns import compile_pattern


def test_a_group_counts_only_if_it_is_exactly_as_expected() -> None:
    assert grouping_accuracy([7, 7, 8, 9], ["a", "a", "b", "c"]) == 1.0
    assert grouping_accuracy([7, 7, 7, 9], ["a", "a", "b", "c"]) == 0.25
    assert grouping_accuracy([1, 2, 3, 3], ["a", "a", "b", "b"]) == 0.5


def test_every_pattern_compiles_and_there_are_sixteen_sets() -> None:
    assert len(PATTERNS) == 16
    for patterns in PATTERNS.values():
        for pattern in patterns:
            compile_pattern(pattern)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Android", "09-21 13:59:58.123  1702  2395 E Shop: basket 7 is gone"),
        ("HealthApp", "20260921-13:5:58:606|Steps|3000|walked 12"),
        ("HPC", "17 node-3 disk state_change 1789999198 1 it is full"),
        ("Proxifier", "[09.21 13:59:58] shop.exe *64 - example.org:80 open"),
    ],
)
def test_lines_that_no_format_reads_are_parsed_by_their_pattern(name: str, line: str) -> None:
    assert parsed_share([line.encode()], ()) == 0.0
    assert parsed_share([line.encode(), b"nothing"], PATTERNS[name]) == 0.5


def test_sets_are_read_and_compared(tmp_path: Path) -> None:
    folder = tmp_path / "Spark"
    folder.mkdir()
    (folder / "Spark_2k.log").write_bytes(b"26/09/21 13:59:58 INFO a: b 1\r\n" * 2)
    (folder / "Spark_2k.log_structured.csv").write_text("Content,EventId\nb 1,E1\nb 2,E1\n")
    [found] = read_sets(tmp_path)
    line = b"26/09/21 13:59:58 INFO a: b 1\r"
    assert found == DataSet("Spark", [line, line], ["b 1", "b 2"], ["E1", "E1"])
    assert table([found], {"Spark": [1, 2]}) == [
        ("Spark", "100.0 %", "100.0 %", "1.000", "0.000"),
        ("mean", "", "", "1.000", "0.000"),
    ]
