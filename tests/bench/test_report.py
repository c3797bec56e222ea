from bench.report import Conditions, markdown, overview, summary
from bench.rows import Row, at_least

CONDITIONS = Conditions(
    when="2026-01-31",
    machine="two cores",
    kafka_version="4.3.0",
    java_version="17",
    rounds="5 each",
    command="make bench",
)
MET = Row("produce", "raw", "MB/s", [200], [100], at_least(1.5))
MISSED = Row("consume", "hot", "MB/s", [100], [100], at_least(1.5))


def test_missed_targets_are_named_first() -> None:
    assert summary([MET, MISSED]) == "**1 of 2 targets met.** Missed: consume: hot."
    assert summary([MET]) == "**1 of 1 targets met.**"


def test_the_page_has_a_table_per_part_with_the_command_that_repeats_it() -> None:
    page = markdown(
        [MET, MISSED],
        CONDITIONS,
        {"produce": "benchmarks/produce.svg"},
        {"produce": "P.", "consume": "C."},
    )

    assert "2026-01-31, two cores" in page
    assert '`make bench ARGS="produce"`' in page
    assert "| raw, MB/s | 200 | 100 | 2.00 | >= 1.5 | pass |" in page
    assert "![produce](benchmarks/produce.svg)" in page
    assert "## consume" in page


def test_the_overview_says_what_is_ahead_and_what_is_behind() -> None:
    rows = [
        Row("produce", "fast", "MB/s", [300.0], [100.0]),
        Row("produce", "quick", "us", [10.0], [20.0]),
        Row("produce", "same", "/s", [100.0], [101.0]),
        Row("produce", "slow", "us", [20.0], [10.0]),
        Row("produce", "the disk", "MB/s", [1.0], [9.0], against="the disk"),
        Row("limits", "crc", "MB/s", [1.0]),
    ]
    assert overview(rows).splitlines()[2:] == [
        "| produce | 2 of 4, up to 3.0 times | same | slow (0.50) |"
    ]


def test_more_of_anything_by_the_second_is_better() -> None:
    rows = [Row("groups", "16 clients", "commits/s", [300.0], [100.0])]

    assert overview(rows).splitlines()[2:] == ["| groups | 1 of 1, up to 3.0 times | - | - |"]
