"""Open visits: plain functions over plain values.

A visit is followed in the order in which its views arrive: views of one batch by their time,
batches one after the other. `ended_visits` writes a visit once, after it has certainly ended;
here it is known at once and may still change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The step of a visit that has not begun yet.
NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class View:
    at_us: int
    is_error: bool
    # The funnel step of the page, from 1; 0 for none.
    step: int


@dataclass(slots=True)
class Visit:
    start_us: int
    last_us: int
    views: int
    errors: int
    # The step it reached in the funnel.
    step: int
    # The window in which the funnel counts it. It stays, even if an earlier view arrives later.
    window_us: int


@dataclass(frozen=True, slots=True)
class Change:
    """What a batch did to a visit; `step_before` is what the funnel already counts."""

    visit: Visit
    step_before: int


def follow(
    visit: Visit | None, views: Sequence[View], *, gap_us: int, window_us: int
) -> list[Change]:
    """The visits that `views`, by time, change or begin; the last of them is still open.

    A view from before the visit belongs to an earlier one, which has already ended here.
    """
    changes: list[Change] = []
    step_before = NOT_BEGUN if visit is None else visit.step
    is_changed = False
    for view in views:
        if visit is not None and view.at_us <= visit.start_us - gap_us:
            continue
        if visit is None or view.at_us - visit.last_us >= gap_us:
            if visit is not None and is_changed:
                changes.append(Change(visit, step_before))
            window = view.at_us - view.at_us % window_us
            visit, step_before = Visit(view.at_us, view.at_us, 0, 0, 0, window), NOT_BEGUN
        _add(visit, view)
        is_changed = True
    if visit is not None and is_changed:
        changes.append(Change(visit, step_before))
    return changes


def _add(visit: Visit, view: View) -> None:
    visit.start_us = min(visit.start_us, view.at_us)
    visit.last_us = max(visit.last_us, view.at_us)
    visit.views += 1
    visit.errors += view.is_error
    if view.step == visit.step + 1:
        visit.step = view.step


def count_steps(counts: Sequence[int], moves: Iterable[tuple[int, int]]) -> list[int]:
    """Visits, then those that reached each step, after visits moved (from, to)."""
    found = list(counts)
    for before, now in moves:
        for step in range(before + 1, now + 1):
            found[step] += 1
    return found
