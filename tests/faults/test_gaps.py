from tests.faults.gaps import percentile, summary


def row(gap_ms: int, led: str = "[]", who: str = "", *, counts: bool = True) -> dict[str, object]:
    text = f"SIGKILL of node 1{who}, leader of {led}; longest time without an acknowledgement"
    return {"fault": f"{text} {gap_ms} ms", "counts": counts}


def test_percentiles_are_values_that_were_measured() -> None:
    values = list(range(1, 301))
    assert percentile(values, 50) == 150
    assert percentile(values, 99) == 297
    assert percentile([7], 99) == percentile([7], 0) == 7


def test_leaders_and_controllers_are_told_apart_and_rounds_that_do_not_count_are_left_out() -> None:
    rows = [
        row(300),
        row(900, "[0, 2]"),
        row(700, "[1]", " the controller"),
        row(500, "[]", " the controller"),
        row(99_999, "[1]", counts=False),
    ]
    first, *lines = summary(rows)
    assert "session timeout 18000 ms" in first
    assert lines == [
        "  all: 4 rounds, p50 500 ms, p99 900 ms, longest 900 ms",
        "  a leader was hit: 2 rounds, p50 700 ms, p99 900 ms, longest 900 ms",
        "  the controller was hit: 2 rounds, p50 500 ms, p99 700 ms, longest 700 ms",
    ]


def test_runs_that_measure_no_such_time_say_nothing() -> None:
    assert summary([{"fault": "SIGKILL of 77 with 3 in flight", "counts": True}]) == []
