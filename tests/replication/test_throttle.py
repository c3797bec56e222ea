"""Rates of replication, and whom they concern."""

import pytest

from millstream.replication.throttle import Throttle, is_throttled


def test_a_second_of_the_rate_may_pass_at_once_and_then_as_it_is_earned() -> None:
    throttle = Throttle()
    assert not throttle.is_over(1_000, 0.0)
    throttle.spend(1_500)
    assert throttle.is_over(1_000, 0.0)
    assert throttle.is_over(1_000, 0.4)
    assert not throttle.is_over(1_000, 0.6)
    # However long nobody came, no more than a second's is saved.
    assert not throttle.is_over(1_000, 100.0)
    throttle.spend(1_001)
    assert throttle.is_over(1_000, 100.0)


def test_over_time_the_rate_is_kept() -> None:
    throttle = Throttle()
    sent = 0
    for step in range(10_000):
        if not throttle.is_over(1_000, step / 100):
            throttle.spend(300)
            sent += 300
    assert sent == pytest.approx(100 * 1_000, rel=0.02)


@pytest.mark.parametrize(
    ("replicas", "is_named"),
    [("", False), ("*", True), ("0:2", True), ("0:1, 0:2", True), ("1:2", False), ("0:21", False)],
)
def test_replicas_are_named_one_by_one_or_all(replicas: str, is_named: bool) -> None:
    assert is_throttled(replicas, 0, 2) is is_named
