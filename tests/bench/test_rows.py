from bench.rows import Row, at_least, at_most, cells, number, text_table, with_spread


def test_the_ratio_is_of_medians_not_of_the_best_rounds() -> None:
    row = Row("produce", "raw", "MB/s", [100, 300, 900], [100, 100, 50], at_least(2))

    assert row.ratio == 3
    assert row.verdict == "pass"


def test_the_spread_is_over_neighbouring_rounds() -> None:
    row = Row("produce", "raw", "MB/s", [100, 300], [100, 100])

    assert row.ratio_spread == (1, 3)


def test_a_target_can_be_a_floor_or_a_ceiling() -> None:
    assert at_least(1.5).is_met(1.5)
    assert not at_least(1.5).is_met(1.4)
    assert at_most(0.2).is_met(0.2)
    assert not at_most(0.2).is_met(0.3)


def test_a_row_without_kafka_has_no_ratio_and_no_verdict() -> None:
    row = Row("limits", "CRC", "MB/s", [26_000.0])

    assert row.ratio is None
    assert row.verdict == ""
    assert cells(row) == ["CRC, MB/s", "26,000", "-", "-", "", ""]


def test_a_missed_target_is_said() -> None:
    row = Row("latency", "p99", "us", [30], [100], at_most(0.2))

    assert cells(row)[-2:] == ["<= 0.2", "MISS"]


def test_what_is_not_kafka_is_named_beside_its_figure() -> None:
    row = Row("consume", "hot", "MB/s", [900], [1000], None, "sendfile limit")

    assert cells(row)[2] == "1,000 sendfile limit"


def test_numbers_keep_the_digits_that_matter() -> None:
    assert [number(x) for x in (0, 0.01234, 0.5, 12.34, 123.4, 12345)] == [
        *("0", "0.0123", "0.50", "12.3", "123", "12,345")
    ]


def test_the_median_is_shown_with_the_whole_spread() -> None:
    assert with_spread([3.0, 1.0, 2.0]) == "2.00 (1.00-3.00)"
    assert with_spread([]) == "-"


def test_the_table_has_a_line_per_row_under_the_headings() -> None:
    lines = text_table([Row("a", "first", "s", [1.0]), Row("a", "second", "s", [2.0])]).split("\n")

    assert len(lines) == 3
    assert lines[0].startswith("measurement")
    assert lines[2].startswith("second, s")
