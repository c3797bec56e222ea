"""Visits from parts that come in any order."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline.funnel import funnel_counts
from millstream.pipeline.visit_log import Visit, VisitLog

GAP_US = 100
LATER_US = 10**9
# Times of one visitor, each with the funnel step of its page.
VIEWS = st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 3)), max_size=30)


def log_of(views: list[tuple[int, int]], *, visitor: int = 1) -> VisitLog:
    log = VisitLog(GAP_US)
    for offset, (at_us, step) in enumerate(views):
        log.add(visitor, Visit(at_us, at_us, 1, 0))
        if step:
            log.add_step(visitor, (at_us, 0, offset, step))
    return log


@given(VIEWS)
def test_views_in_any_order_are_the_visits_that_a_report_finds(
    views: list[tuple[int, int]],
) -> None:
    # Of the same moment the one that was written first counts first.
    ordered = sorted(views, key=lambda view: view[0])
    ended = [visit for _, visit in log_of(views).take_ended(LATER_US)]
    counts = [sum(visit.depth >= step for visit in ended) for step in range(4)]
    pages = [(at_us, f"/{step}") for at_us, step in ordered]
    assert counts == funnel_counts([pages], ["/1", "/2", "/3"], gap_us=GAP_US)
    assert sum(visit.views for visit in ended) == len(views)


def test_a_silence_of_exactly_the_gap_ends_a_visit() -> None:
    log = log_of([(0, 0), (199, 0), (99, 0), (298, 0)])
    assert [(each.start_us, each.end_us) for each in log.of(1)] == [(0, 99), (199, 298)]


def test_a_visit_ends_when_the_watermark_has_passed_its_last_view_by_the_gap() -> None:
    log = log_of([(0, 0), (150, 0)])
    assert log.take_ended(99) == []
    [(visitor, visit)] = log.take_ended(100)
    assert (visitor, visit.end_us) == (1, 0)
    log.add(1, Visit(160, 170, 2, 1))
    assert log.take_ended(250) == []
    [(_, visit)] = log.take_ended(270)
    assert (visit.start_us, visit.end_us, visit.views, visit.errors) == (150, 170, 3, 1)
    assert (len(log), log.of(1)) == (0, [])


def test_a_step_counts_only_after_the_one_before_it() -> None:
    [visit] = log_of([(3, 2), (0, 2), (2, 3), (1, 1)]).of(1)
    assert visit.depth == 2


def test_steps_before_the_watermark_are_forgotten_but_not_what_they_reached() -> None:
    log = log_of([(at_us, step) for at_us, step in ((10, 1), (30, 3), (20, 2), (40, 1))])
    [visit] = log.of(1)
    visit.settle(30)
    assert (visit.reached, len(visit.steps), visit.depth) == (2, 2, 3)
    visit.settle(31)
    assert (visit.reached, visit.steps, visit.depth) == (3, [(40, 0, 3, 1)], 3)


@given(VIEWS, st.lists(st.integers(0, 2000), max_size=6))
def test_every_visit_ends_once_and_in_time_however_the_watermark_moves(
    views: list[tuple[int, int]], moves: list[int]
) -> None:
    log = VisitLog(GAP_US)
    waiting = sorted(views)
    seen = []
    for watermark_us in [*sorted(moves), LATER_US]:
        # Views come before the watermark passes them.
        while waiting and waiting[0][0] < watermark_us:
            at_us, _ = waiting.pop(0)
            log.add(1, Visit(at_us, at_us, 1, 0))
        seen += [(each, watermark_us) for _, each in log.take_ended(watermark_us)]
        assert all(each.end_us + GAP_US > watermark_us for each in log.of(1))
    assert sum(visit.views for visit, _ in seen) == len(views)
    whole = [visit for _, visit in log_of(views).take_ended(LATER_US)]
    assert [(each.start_us, each.end_us) for each, _ in seen] == [
        (each.start_us, each.end_us) for each in whole
    ]


def test_a_visit_that_goes_on_is_looked_at_once() -> None:
    log = log_of([(10 * number, 0) for number in range(1000)])
    assert len(log._looks) == 1
