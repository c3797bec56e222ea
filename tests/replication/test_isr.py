"""Who leaves the in-sync replicas, and who joins them."""

import pytest

from millstream.replication.isr import IsrChange
from tests.replication.test_leadership import fetch, lead, wanted

# -- leaving --------------------------------------------------------------------------


def test_a_follower_leaves_when_it_has_not_caught_up_for_the_lag_time() -> None:
    leadership = lead()
    fetch(leadership, 2, 100, now_ms=900)
    fetch(leadership, 3, 50, now_ms=900)
    assert wanted(leadership, now_ms=1_000) is None
    assert wanted(leadership, now_ms=1_001) == IsrChange((1, 2), version=4)


def test_a_follower_at_the_end_stays_however_long_it_is_silent() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 2, 100)
    assert wanted(leadership, now_ms=1_000_000) is None


def test_reaching_an_older_end_counts_as_caught_up_at_that_time() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 2, 90, end_offset=100, now_ms=500)
    fetch(leadership, 2, 100, end_offset=200, now_ms=900)
    follower = leadership.follower(2)
    assert follower is not None
    assert follower.caught_up_ms == 500
    assert wanted(leadership, end_offset=200, now_ms=1_500) is None
    assert wanted(leadership, end_offset=200, now_ms=1_501) == IsrChange((1,), version=4)


def test_a_member_that_is_no_longer_assigned_leaves() -> None:
    leadership = lead()
    leadership.adopt(replicas=(1, 2), isr=(1, 2, 3), min_isr=2, version=5)
    assert wanted(leadership) == IsrChange((1, 2), version=5)


# -- joining --------------------------------------------------------------------------


def test_a_follower_joins_at_the_high_watermark() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 3, 59)
    assert wanted(leadership, high_watermark=60) is None
    fetch(leadership, 3, 60)
    assert wanted(leadership, high_watermark=60) == IsrChange((1, 2, 3), 4, ((3, 30),))


def test_a_follower_joins_not_before_the_start_of_the_leadership() -> None:
    leadership = lead(isr=(1, 2), start_offset=80)
    fetch(leadership, 3, 79)
    assert wanted(leadership, high_watermark=60) is None
    fetch(leadership, 3, 80)
    assert wanted(leadership, high_watermark=60) is not None


def test_a_follower_that_did_not_fetch_in_this_epoch_does_not_join() -> None:
    assert wanted(lead(isr=(1, 2))) is None


@pytest.mark.parametrize("alive", [{1: 10, 2: 20}, {1: 10, 2: 20, 3: 31}])
def test_only_the_registered_incarnation_joins(alive: dict[int, int]) -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 3, 100)
    assert wanted(leadership, alive=alive) is None


def test_what_an_older_incarnation_fetched_does_not_count_for_the_new_one() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 3, 100, broker_epoch=29)
    assert not leadership.is_stale(3, 30)
    fetch(leadership, 3, 10, broker_epoch=30)
    assert leadership.is_stale(3, 29)
    assert wanted(leadership, high_watermark=60) is None
