"""Values that are far from the usual: when episodes begin and end, and what is usual."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline import anomalies
from millstream.pipeline.anomalies import (
    CELLS,
    RECENT_MAX,
    RECENT_MIN,
    Anomalies,
    AnomalyAlert,
    AnomalyRules,
    Measured,
    measured,
)
from millstream.pipeline.counters import Growth
from millstream.pipeline.window_totals import Gauge, WindowTotals
from tests.pipeline.events import ANOMALY_RULES

MINUTE_US = 60_000_000
DAY_US = 24 * 60 * MINUTE_US
CPU = ("host", "db", "cpu")


def one(value: float, key: tuple[str, str, str] = CPU) -> list[Measured]:
    return [Measured(key, value, 100)]


def fed(
    values: list[float], *, key: tuple[str, str, str] = CPU, rules: AnomalyRules = ANOMALY_RULES
) -> list[AnomalyAlert]:
    """The alerts of a series with these values, one a minute."""
    watch = Anomalies(rules)
    return [
        alert
        for number, value in enumerate(values)
        for alert in watch.add(number * MINUTE_US, one(value, key))
    ]


STEADY = [0.5, 0.52, 0.48, 0.51] * 8


def test_two_unusual_windows_in_a_row_begin_an_episode_and_two_usual_ones_end_it() -> None:
    begin, end = fed([*STEADY, 0.9, 0.95, 0.99, 0.9, 0.5, 0.5, 0.5])
    assert (begin.kind, begin.key, begin.value) == ("anomaly", CPU, 0.95)
    assert begin.since_us == len(STEADY) * MINUTE_US
    assert begin.usual.low < 0.48 < begin.usual.expected < 0.52 < begin.usual.high < 0.9
    assert begin.text.startswith("0.95, usually 0.51 (")
    assert (end.kind, end.since_us) == ("usual", (len(STEADY) + 4) * MINUTE_US)
    assert "unusual for 4 windows, up to 0.99" in end.text


@pytest.mark.parametrize(
    "values",
    [
        STEADY,
        # One window alone, twice.
        [*STEADY, 0.9, 0.5, 0.9, 0.5],
        # Too little is known.
        [*[0.5] * (RECENT_MIN - 1), 0.9, 0.9],
        # Within what varies anyway.
        [*STEADY, 0.6, 0.6],
    ],
)
def test_what_is_no_anomaly(values: list[float]) -> None:
    assert fed(values) == []


def test_an_episode_is_told_once_and_a_new_level_becomes_usual() -> None:
    alerts = fed([*STEADY, *[5.0] * 100])
    assert [alert.kind for alert in alerts] == ["anomaly", "usual"]
    assert alerts[1].since_us <= (len(STEADY) + RECENT_MAX) * MINUTE_US


def test_less_sensitive_means_fewer_alerts() -> None:
    values = [*STEADY, 0.9, 0.9]
    dull = AnomalyRules(60.0, MINUTE_US, "UTC", (), ())
    assert (len(fed(values)), len(fed(values, rules=dull))) == (1, 0)


def test_counts_vary_by_chance() -> None:
    key = ("service", "cart", "per_second")
    few = [number / 60 for number in [3, 2, 4, 3, 3, 2, 4, 3] * 5]
    assert fed([*few, 9 / 60, 10 / 60], key=key) == []
    assert len(fed([*few, 50 / 60, 50 / 60], key=key)) == 1


def test_the_same_time_on_other_days_is_usual() -> None:
    """A job that runs every night is an anomaly in the first nights only."""
    watch = Anomalies(ANOMALY_RULES)
    found = []
    for minute in range(6 * 24 * 60):
        is_night = 120 <= minute % (24 * 60) < 150
        alerts = watch.add(minute * MINUTE_US, one(0.9 if is_night else 0.5))
        found += [alert.since_us // DAY_US for alert in alerts if alert.kind == "anomaly"]
    assert found == [0, 1, 2]
    # At another time it is one on any day.
    start_us = 6 * DAY_US
    for minute in range(600, 602):
        found += [a.kind for a in watch.add(start_us + minute * MINUTE_US, one(0.9))]
    assert found[3:] == ["anomaly"]
    [series] = watch.series.values()
    assert series.cells is not None
    assert (series.cells.size, len(series.recent)) == (CELLS * 7, RECENT_MAX)


def test_a_service_without_lines_has_none_per_second() -> None:
    cart, everything = ("service", "cart", "per_second"), ("input", "all", "per_second")
    host = ("host", "db", "per_second")
    watch = Anomalies(ANOMALY_RULES)
    kinds = []
    for number in range(60):
        values = [*one(20.0, everything)]
        if number < 40:
            values += [*one(10.0, cart), *one(10.0, host)]
        kinds += [(each.key, each.kind) for each in watch.add(number * MINUTE_US, values)]
    assert kinds == [(cart, "anomaly")]


def test_series_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anomalies, "SERIES_MAX", 2)
    watch = Anomalies(ANOMALY_RULES)
    values = [*one(1.0, ("host", "a", "cpu")), *one(1.0, ("host", "b", "cpu")), *one(1.0)]
    watch.add(0, values)
    assert set(watch.series) == {("host", "a", "cpu"), ("host", "b", "cpu")}
    watch.add(3 * DAY_US + 1, one(1.0))
    assert set(watch.series) == set()
    watch.add(3 * DAY_US + 2, one(1.0))
    assert set(watch.series) == {CPU}


def test_what_a_window_measures() -> None:
    totals = WindowTotals(count=120, errors=30, gauges=[Gauge(2, 3.0, 2.0), Gauge()])
    totals.durations.add(np.arange(1.0, 101.0))
    found = measured((0, "host", "db"), totals, {0: Growth(60.0, 1.0)}, ANOMALY_RULES)
    assert {each.key[2]: each.value for each in found} == {
        "per_second": 2.0,
        "error_share": 0.25,
        "duration_ms_p95": 95.0,
        "cpu": 1.5,
        "served": 1.0,
    }
    few = WindowTotals(count=19, errors=19)
    assert [each.key[2] for each in measured((0, "input", "all"), few, {}, ANOMALY_RULES)] == [
        "per_second"
    ]
    assert list(measured((0, "site", "all"), totals, {}, ANOMALY_RULES)) == []


@given(st.integers(0, 2**32), st.floats(1e-3, 1e6), st.floats(0, 0.2))
def test_noise_around_a_level_is_no_anomaly(seed: int, level: float, noise: float) -> None:
    random = Random(seed)
    values = [level * (1 + noise * random.uniform(-1, 1)) for _ in range(200)]
    assert fed(values) == []


@given(st.lists(st.floats(0, 1e9), max_size=120))
def test_episodes_begin_and_end_in_turn(values: list[float]) -> None:
    kinds = [alert.kind for alert in fed(values)]
    assert kinds == (["anomaly", "usual"] * len(kinds))[: len(kinds)]
    assert all(alert.usual.low <= alert.usual.expected <= alert.usual.high for alert in fed(values))
