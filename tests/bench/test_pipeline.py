"""What the benchmark of the pipeline makes of its measurements."""

import pytest

pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed: no pyspark")
pytest.importorskip("deltalake", reason="the extra `pipeline` is not installed: no deltalake")

from bench.parts.pipeline import stage_shares
from bench.pipeline import delays_ms


def test_a_line_is_seen_by_the_first_count_that_includes_it() -> None:
    sent = [1000, 1100, 1200, 1300]
    seen = [(1500.0, 2), (1600.0, 2), (2000.0, 4)]
    assert delays_ms(sent, seen) == [500, 400, 800, 700]


def test_what_is_not_seen_has_no_delay() -> None:
    assert delays_ms([1000, 1100], [(1500.0, 1)]) == [500]


def test_reading_and_parsing_count_for_each_query() -> None:
    # One second a line to read, two with parsing, three with what a query does itself.
    rates = {"read": 1.0, "parse": 1 / 2, "live windows": 1 / 3, "final windows": 1 / 3}
    shares = stage_shares(rates, tables_rate=1 / 3, sent_rate=1.0)
    assert shares == {
        "sending": pytest.approx(10),
        "reading": pytest.approx(30),
        "parsing": pytest.approx(30),
        "live windows": pytest.approx(10),
        "final windows": pytest.approx(10),
        "tables": pytest.approx(10),
    }
