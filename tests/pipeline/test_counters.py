"""The growth of numbers that only grow, whatever order their samples come in."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline import counters
from millstream.pipeline.counters import SCHEMA, CounterLog, Growth, latest_samples

SECOND_US = counters.SECOND_US
MINUTE_US = 60 * SECOND_US


def table(*samples: tuple[float, float], host: str = "db", source: str = "s") -> pa.Table:
    """Seconds and values, in the order of their offsets."""
    rows = [
        {
            "host": host,
            "source": source,
            "service": "",
            "counter": 0,
            "partition": 0,
            "at_us": round(second * SECOND_US),
            "offset": offset,
            "value": value,
        }
        for offset, (second, value) in enumerate(samples)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def log_of(*tables: pa.Table) -> CounterLog:
    found = CounterLog(MINUTE_US)
    for each in tables:
        found.add(latest_samples(each), closed_us=None)
    return found


def test_growth_belongs_to_the_window_of_the_later_sample() -> None:
    log = log_of(table((10, 100), (50, 140), (70, 150), (100, 180)))
    assert log.growth(0, "db") == {0: Growth(40.0, 1.0)}
    # From the sample at 50 to that at 100.
    assert log.growth(MINUTE_US, "db") == {0: Growth(40.0, 0.8)}
    assert log.growth(2 * MINUTE_US, "db") == log.growth(0, "web") == {}


def test_a_smaller_number_means_that_it_began_again() -> None:
    log = log_of(table((0, 100), (10, 110), (20, 5), (30, 25)))
    assert log.growth(0, "db")[0].increase == 10 + 5 + 20


def test_two_sources_of_a_host_are_two_series_and_one_sum() -> None:
    log = log_of(table((0, 0), (10, 10)), table((1, 1000), (11, 1030), source="t"))
    assert log.growth(0, "db") == {0: Growth(40.0, 4.0)}


def test_the_last_sample_of_a_second_counts() -> None:
    found = latest_samples(table((1.1, 7), (0, 1), (1.9, 9), (1.5, 8), (1.9, 10)))
    assert found["value"].to_pylist() == [1, 10]
    log = log_of(table((0, 1), (1.9, 9)), table((1.1, 100)))
    assert log.growth(0, "db")[0].increase == 8


def test_a_late_sample_changes_its_own_window_and_the_next() -> None:
    log = log_of(table((0, 0), (70, 70)))
    changed = log.add(table((50, 50)), closed_us=None)
    assert changed == {(0, "db"), (MINUTE_US, "db")}
    assert log.growth(MINUTE_US, "db")[0].increase == 20
    # The same again is no change, and one for a closed window is too late.
    assert log.add(table((50, 50)), closed_us=None) == set()
    assert log.add(table((40, 10)), closed_us=0) == set()


def test_of_closed_windows_the_last_sample_stays_for_a_day() -> None:
    log = log_of(table((0, 0), (10, 10), (20, 30), (70, 70)))
    log.close(0)
    assert [row[4] for row in log.samples()] == [20 * SECOND_US, 70 * SECOND_US]
    assert log.growth(MINUTE_US, "db")[0].increase == 40
    day_us = counters.FORGOTTEN_AFTER_US
    log.close(day_us)
    assert len(log) == 1
    log.close(day_us + 2 * MINUTE_US)
    assert (len(log), list(log.samples())) == (0, [])


def test_a_series_that_was_silent_for_more_than_a_day_begins_anew() -> None:
    day = counters.FORGOTTEN_AFTER_US // SECOND_US
    assert log_of(table((0, 5), (day, 9))).growth(day * SECOND_US, "db")[0].increase == 4
    assert log_of(table((0, 5), (day + 1, 9))).growth(day * SECOND_US, "db") == {}


def test_there_are_not_more_series_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "SERIES_MAX", 1)
    log = log_of(table((0, 0), (1, 1)), table((0, 0), (1, 1), source="t"))
    assert (len(log), log.growth(0, "db")[0].increase) == (1, 1)


SAMPLES = st.lists(st.tuples(st.integers(0, 119), st.integers(0, 50)), max_size=30)


@given(SAMPLES, st.data())
def test_any_order_and_division_give_the_same_growth(
    samples: list[tuple[int, int]], data: st.DataObject
) -> None:
    whole = table(*samples)
    cut = data.draw(st.integers(0, len(samples)))
    order = pa.array(data.draw(st.permutations(range(len(samples)))), pa.int64())
    mixed = whole.take(order)
    parts = log_of(mixed[:cut], mixed[cut:])
    for window_us in (0, MINUTE_US):
        assert parts.growth(window_us, "db") == log_of(whole).growth(window_us, "db")
