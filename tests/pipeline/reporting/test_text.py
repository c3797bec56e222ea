"""What a report leaves out of its text."""

import pyarrow as pa

from millstream.pipeline.reporting.text import Section, as_html, as_markdown


def traffic(lines: list[int]) -> Section:
    hours = [f"{hour:02}:00" for hour in range(len(lines))]
    table = pa.table({"hour": hours, "lines": lines, "views": [0] * len(lines)})
    return Section("traffic", "Traffic by hour", table, charts=("lines",))


def test_hours_without_lines_are_counted_and_left_out_of_the_table_but_not_of_the_chart() -> None:
    sections = [traffic([0, 7, 0])]
    text = as_markdown("t", "", sections)
    assert "2 of 3 hours had no lines." in text
    assert [line for line in text.splitlines() if line.startswith("| 0")] == ["| 01:00 | 7 |"]
    page = as_html("t", "", sections)
    assert "2 of 3 hours had no lines." in page
    assert "3 columns, at most 7" in page
    assert "<td>01:00</td>" in page
    assert "<td>00:00</td>" not in page


def test_a_table_in_which_every_hour_has_lines_says_nothing_of_that() -> None:
    assert "had no lines" not in as_markdown("t", "", [traffic([1, 2])])


def test_a_long_text_is_cut_and_a_column_without_texts_left_out() -> None:
    states = pa.array([None], pa.string())
    table = pa.table({"template": ["x" * 5000], "messages": [3], "state": states})
    text = as_markdown("t", "", [Section("messages", "Messages", table)])
    assert f"| {'x' * 200}\u2026 | 3 |" in text
    assert "state" not in text
