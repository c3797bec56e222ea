"""Visits as their views arrive, and the funnel that counts them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline.funnel import funnel_counts
from millstream.pipeline.open_visits import (
    NOT_BEGUN,
    Change,
    View,
    Visit,
    count_steps,
    follow,
)

GAP_US = 100
WINDOW_US = 1000


def views(*seen: tuple[int, int]) -> list[View]:
    return [View(at_us, False, step) for at_us, step in seen]


def after(visit: Visit | None, *seen: tuple[int, int]) -> list[Change]:
    return follow(visit, views(*seen), gap_us=GAP_US, window_us=WINDOW_US)


def test_a_visit_grows_with_its_views() -> None:
    [begun] = after(None, (5000, 0), (5010, 1))
    assert begun == Change(Visit(5000, 5010, 2, 0, 1, 5000), NOT_BEGUN)
    [grown] = after(begun.visit, (5090, 2), (5120, 0))
    assert grown == Change(Visit(5000, 5120, 4, 0, 2, 5000), 1)


def test_errors_are_counted() -> None:
    [change] = follow(None, [View(1, True, 0), View(2, False, 0)], gap_us=9, window_us=10)
    assert change.visit.errors == 1


def test_a_step_counts_only_after_the_one_before_it() -> None:
    [change] = after(None, (0, 2), (1, 1), (2, 3), (3, 2))
    assert change.visit.step == 2


def test_a_silence_ends_a_visit_and_the_next_view_begins_another() -> None:
    [first] = after(None, (5000, 1))
    changes = after(first.visit, (5099, 2), (5199, 1), (5298, 0))
    assert [(each.visit.start_us, each.visit.views) for each in changes] == [(5000, 2), (5199, 2)]
    assert [(each.step_before, each.visit.step) for each in changes] == [(1, 2), (NOT_BEGUN, 1)]


def test_a_visit_that_only_ended_has_not_changed() -> None:
    [first] = after(None, (5000, 1))
    [second] = after(first.visit, (6000, 0))
    assert second.visit.start_us == 6000


def test_a_view_that_comes_late_moves_the_start_but_not_the_window() -> None:
    [first] = after(None, (5000, 0))
    [change] = after(first.visit, (4950, 0))
    assert (change.visit.start_us, change.visit.window_us, change.visit.views) == (4950, 5000, 2)


def test_a_view_of_a_visit_that_is_over_changes_nothing() -> None:
    [first] = after(None, (5000, 0))
    assert after(first.visit, (4900, 0)) == []


def test_a_funnel_counts_every_step_of_a_visit_once() -> None:
    counts = count_steps([0, 0, 0], [(NOT_BEGUN, 0), (NOT_BEGUN, 2)])
    assert counts == [2, 1, 1]
    assert count_steps(counts, [(0, 1), (2, 2)]) == [2, 2, 1]


@given(
    st.lists(st.tuples(st.integers(0, 150), st.integers(0, 3)), max_size=30),
    st.lists(st.integers(0, 30), max_size=5),
)
def test_views_in_order_count_as_the_report_counts_them_however_they_are_batched(
    pauses: list[tuple[int, int]], cuts: list[int]
) -> None:
    at_us, seen = 5000, []
    for pause_us, step in pauses:
        at_us += pause_us
        seen.append((at_us, step))
    counts, visit = [0, 0, 0, 0], None
    edges = [0, *sorted(cuts), len(seen)]
    for first, end in pairwise(edges):
        changes = after(visit, *seen[first:end])
        counts = count_steps(counts, [(each.step_before, each.visit.step) for each in changes])
        visit = changes[-1].visit if changes else visit
    pages = [(at_us, f"/{step}") for at_us, step in seen]
    assert counts == funnel_counts([pages], ["/1", "/2", "/3"], gap_us=GAP_US)
