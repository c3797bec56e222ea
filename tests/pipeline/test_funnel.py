from millstream.pipeline.funnel import funnel_counts

STEPS = ["/product*", "/cart", "/thanks"]


def counts(*paths: tuple[int, str]) -> list[int]:
    return funnel_counts([paths], STEPS, gap_us=100)


def test_steps_count_in_order_with_other_pages_between() -> None:
    assert counts((0, "/"), (1, "/product/7"), (2, "/about"), (3, "/cart")) == [1, 1, 1, 0]


def test_a_step_that_comes_too_early_does_not_count() -> None:
    assert counts((0, "/cart"), (1, "/product/7"), (2, "/thanks")) == [1, 1, 0, 0]


def test_a_silence_begins_a_new_visit() -> None:
    assert counts((0, "/product/7"), (99, "/cart"), (199, "/thanks")) == [2, 1, 1, 0]


def test_nobody_came() -> None:
    assert funnel_counts([], STEPS, gap_us=100) == [0, 0, 0, 0]
