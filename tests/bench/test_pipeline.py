"""What the benchmark of the pipeline makes of its measurements."""

import pytest

pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed: no pyspark")
pytest.importorskip("deltalake", reason="the extra `pipeline` is not installed: no deltalake")

from bench.parts.pipeline import long_rows, stage_shares
from bench.pipeline import delays_ms
from bench.pipeline_growth import STEPS, Step, delays_of, middle_of


def test_a_line_is_seen_by_the_first_count_that_includes_it() -> None:
    sent = [1000, 1100, 1200, 1300]
    seen = [(1500.0, 2), (1600.0, 2), (2000.0, 4)]
    assert delays_ms(sent, seen) == [500, 400, 800, 700]


def test_what_is_not_seen_has_no_delay() -> None:
    assert delays_ms([1000, 1100], [(1500.0, 1)]) == [500]


def test_a_stage_costs_what_the_one_before_it_does_not() -> None:
    # A second to send a line, one to read it, three with tables, four with results.
    rates = {"read": 1.0, "tables": 1 / 3, "results": 1 / 4}
    assert stage_shares(rates, sent_rate=1.0) == {
        "sending": pytest.approx(20),
        "reading": pytest.approx(20),
        "parsing and tables": pytest.approx(40),
        "results": pytest.approx(20),
    }


def test_a_mark_is_seen_by_the_first_count_that_includes_it() -> None:
    marks = [(1000, 1.0), (2000, 2.0)]
    assert delays_of(marks, [(1500.0, 900), (3000.0, 1000), (3500.0, 2500)]) == [2.0, 1.5]


def test_a_long_run_is_compared_with_its_own_beginning() -> None:
    steps = [Step(number, {"node": 10.0 * number}, 0.5, 1.0) for number in range(1, STEPS + 1)]
    memory, *delays = long_rows(steps)
    assert (list(memory.ours), list(memory.theirs), memory.verdict) == ([100.0], [30.0], "MISS")
    assert [row.verdict for row in delays] == ["pass", ""]


def test_memory_that_is_taken_for_a_moment_does_not_count() -> None:
    found = [{"driver": 300.0, "node": 50.0}, {"driver": 540.0, "node": 51.0}]
    assert middle_of([*found, {"driver": 310.0, "node": 52.0}]) == {"driver": 310.0, "node": 51.0}
