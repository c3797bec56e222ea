from millstream.console.history import POINTS_MAX, SAMPLES_MAX, SERIES_MAX, History, Rates


def test_a_chart_has_a_value_or_nothing_for_each_time() -> None:
    history = History()
    history.add(1.0, {"a": 1})
    history.add(2.0, {"a": 2, "b": 5})
    chart = history.chart(["a", "b", "c"])
    assert chart.times == [1.0, 2.0]
    assert chart.series == {"a": [1, 2], "b": [None, 5], "c": [None, None]}
    assert history.chart(["a"], since=1.0).series == {"a": [2]}
    assert history.latest("b") == 5
    assert history.latest("c") is None


def test_an_hour_is_kept_and_a_chart_has_few_points() -> None:
    history = History()
    for second in range(SAMPLES_MAX + 10):
        history.add(float(second), {"a": second})
    assert len(history) == SAMPLES_MAX
    assert len(history.chart(["a"]).times) <= POINTS_MAX
    assert history.latest("a") == SAMPLES_MAX + 9


def test_the_number_of_series_is_limited() -> None:
    history = History()
    history.add(1.0, {f"s{number}": 1.0 for number in range(SERIES_MAX + 5)})
    assert len(history.names) == SERIES_MAX


def test_a_series_not_seen_for_an_hour_makes_room() -> None:
    history = History()
    history.add(0.0, {"old": 1.0})
    for second in range(1, SAMPLES_MAX + 62):
        history.add(float(second), {"new": 1.0})
    assert history.names == ["new"]


def test_rates_are_growth_per_second_and_never_negative() -> None:
    rates: Rates[str] = Rates()
    assert rates.take(0.0, {"a": 100, "b": 10}) == {}
    assert rates.take(5.0, {"a": 150, "b": 0, "c": 7}) == {"a": 10.0, "b": 0.0}
