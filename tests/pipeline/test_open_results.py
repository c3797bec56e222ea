"""Results merged from parts: any division of the lines gives the same ones."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.silence import HostAlert
from tests.pipeline.events import (
    CLOSING_US,
    DELAY_US,
    RULES,
    SECOND_US,
    Event,
    add,
    gathered,
    new_results,
    parts_of,
    plain,
)

MINUTE_US = RULES.window_us
NUMBERS = st.floats(0, 1e6)
EVENTS = st.builds(
    Event,
    # So near to each other that the watermark passes none of them before the last.
    at_us=st.integers(3 * MINUTE_US, 4 * MINUTE_US + 30 * SECOND_US),
    host=st.sampled_from([None, "db", "web"]),
    service=st.sampled_from([None, "cart"]),
    path=st.sampled_from([None, "/", "/a", "/b1", "/b2", "/c"]),
    visitor=st.sampled_from([None, 1, 2]),
    status=st.sampled_from([None, 200, 500]),
    size_bytes=st.none() | st.integers(0, 2**40),
    duration_ms=st.none() | NUMBERS,
    gauges=st.tuples(st.none() | NUMBERS, st.none() | NUMBERS),
    counter=st.none() | NUMBERS,
    source=st.sampled_from(["s", "t"]),
    message=st.sampled_from([None, "job 1 done", "job 2 done", "bye"]),
    problem=st.sampled_from([None, None, None, "late"]),
)


def results_of(batches: list[list[list[Event]]]) -> dict[str, Any]:
    """Of batches of tasks. An event's offset is its place among all, in whichever task it is."""
    results = new_results()
    first = 0
    live: dict[Any, Any] = {}
    funnels: dict[int, list[int]] = {}
    templates: dict[int, Any] = {}
    for batch in batches:
        tasks = []
        for events in batch:
            tasks.append(gathered(events, first=first))
            first += len(events)
        found = plain(add(results, parts_of(*tasks)))
        # Nothing may be closed before its time.
        assert found["closed"] == found["ended"] == []
        live |= {row[0]: row for row in found["live"]}
        funnels |= found["funnels"]
        templates |= {each.window_us: each for each in found["templates"]}
    closed = plain(add(results, parts_of(gathered([Event(CLOSING_US)]))))
    assert {each.window_us: replace(each, is_final=False) for each in closed["templates"]} == (
        templates
    )
    assert results.dropped == 0
    assert set(results.windows) == {(CLOSING_US // MINUTE_US * MINUTE_US, "input", "all")}
    assert (len(results.visits), results.funnels, results.sites) == (0, {}, {})
    # A visit whose first view comes late leaves a window that has counted it before.
    funnels = {window_us: counts for window_us, counts in funnels.items() if any(counts)}
    same = {name: closed[name] for name in ("closed", "ended")}
    return {"live": live, "funnels": funnels, "templates": _counts(templates), **same}


def _counts(templates: dict[int, Any]) -> dict[int, Any]:
    """Without samples, of which any will do."""
    return {
        window_us: (each.messages, each.templates, [(one.template, one.count) for one in each.top])
        for window_us, each in templates.items()
    }


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=40), st.data())
def test_any_division_of_lines_into_batches_and_tasks_gives_the_same_results(
    events: list[Event], data: st.DataObject
) -> None:
    batches: list[list[list[Event]]] = [[[]]]
    for event in events:
        where = data.draw(st.sampled_from(["task", "new task", "new batch"]))
        if where == "new batch":
            batches.append([[]])
        elif where == "new task":
            batches[-1].append([])
        batches[-1][-1].append(event)
    whole = results_of([[events]])
    assert results_of(batches) == whole
    # Live windows end as what the closed ones say.
    assert [whole["live"][row[0]] for row in whole["closed"]] == whole["closed"]


def test_a_funnel_counts_ended_visits_too_and_forgets_a_window_without_open_ones() -> None:
    results = new_results()
    views = [Event(at, path=path, visitor=1) for at, path in ((0, "/a"), (1, "/b"), (2, "/c"))]
    assert add(results, parts_of(gathered(views))).funnels == {0: [1, 1, 1, 1]}
    another = Event(3, path="/a", visitor=2)
    # The first visit ends; the window does not.
    late = Event(RULES.gap_us + DELAY_US + 2)
    changes = add(results, parts_of(gathered([another, late])))
    assert changes.funnels == {0: [2, 2, 1, 1]}
    assert [visitor for visitor, _ in changes.ended_visits] == [1]
    [change] = add(results, parts_of(gathered([Event(4, path="/b", visitor=2)]))).funnels.values()
    assert change == [2, 2, 2, 1]
    add(results, parts_of(gathered([Event(CLOSING_US)])))
    assert results.funnels == {}


def test_views_between_two_visits_make_them_one() -> None:
    results = new_results()
    step_us = RULES.gap_us - 1
    views = [Event(at * step_us, path=page, visitor=1) for at, page in ((0, "/a"), (2, "/b"))]
    changes = add(results, parts_of(gathered(views)))
    assert changes.funnels == {0: [2, 1, 0, 0]}
    changes = add(results, parts_of(gathered([Event(step_us, path="/", visitor=1)])))
    assert changes.funnels == {0: [1, 1, 1, 0]}
    changes = add(results, parts_of(gathered([Event(CLOSING_US)])))
    assert plain(changes)["ended"] == [(1, (0, 2 * step_us, 3, 0, 2))]


def test_a_line_for_a_window_that_is_closed_is_dropped_and_counted() -> None:
    results = new_results()
    add(results, parts_of(gathered([Event(0), Event(MINUTE_US + DELAY_US)])))
    late = [Event(1, host="db", path="/", visitor=1), Event(2), Event(MINUTE_US)]
    changes = add(results, parts_of(gathered(late)))
    assert results.dropped == 2
    assert [window.key for window in changes.live] == [(MINUTE_US, "input", "all")]
    assert changes.closed == []


def test_a_window_is_closed_once_by_the_batch_that_moves_the_watermark() -> None:
    results = new_results()
    end_us = MINUTE_US + DELAY_US
    assert add(results, parts_of(gathered([Event(0), Event(end_us - 1)]))).closed == []
    changes = add(results, parts_of(gathered([Event(end_us)])))
    assert [window.key for window in changes.closed] == [(0, "input", "all")]
    assert add(results, parts_of(gathered([Event(end_us)]))).closed == []


# -- by the clock ----------------------------------------------------------------------------


def test_a_host_falls_silent_in_a_batch_without_lines() -> None:
    results = new_results()
    add(results, parts_of(gathered([Event(0, host="db")]), now_ms=1000))
    assert add(results, parts_of(now_ms=20_999)).hosts == []
    [alert] = add(results, parts_of(now_ms=21_000)).hosts
    assert alert == HostAlert("silent", "db", 1000, "no lines for 20 s")


def test_a_visit_is_shown_at_every_change_and_taken_back_when_it_is_over() -> None:
    results = new_results()
    gap_ms = RULES.gap_us // 1000

    def shown(now_ms: int, *views: int) -> dict[int, Any]:
        events = [Event(at, path="/", visitor=5) for at in views]
        found: dict[int, Any] = plain(add(results, parts_of(gathered(events), now_ms=now_ms)))[
            "open"
        ]
        return found

    assert shown(0, 10) == {5: (10, 10, 1, 0, 0)}
    assert shown(gap_ms - 1, 20) == {5: (10, 20, 2, 0, 0)}
    # Its first end is over, but it went on since.
    assert shown(gap_ms) == {}
    assert shown(2 * gap_ms - 2) == {}
    assert shown(2 * gap_ms - 1) == {5: None}
    assert shown(9 * gap_ms) == {}


def test_without_a_clock_nothing_goes_by_it() -> None:
    results = new_results()
    changes = add(results, parts_of(gathered([Event(0, host="db", path="/", visitor=1)])))
    assert (changes.open_visits, changes.hosts, results.hosts) == ({}, [], {})
