"""The leader's rules, one short story each: offsets in, decisions out."""

import pytest

from millstream.replication.isr import IsrChange
from millstream.replication.leadership import Divergence, Leadership, find_divergence
from millstream.storage.epochs import EpochCache

ALIVE = {1: 10, 2: 20, 3: 30}
LAG_MS = 1_000


def lead(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    min_isr: int = 2,
    start_offset: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> Leadership:
    return Leadership(
        broker_id=1,
        leader_epoch=7,
        start_offset=start_offset,
        replicas=replicas,
        isr=isr,
        min_isr=min_isr,
        version=4,
        now_ms=0,
    )


def fetch(
    leadership: Leadership,
    replica: int,
    offset: int,
    *,
    end_offset: int = 100,
    now_ms: int = 0,
    broker_epoch: int | None = None,
    log_start_offset: int = 0,
    is_sent_records: bool = False,
) -> None:
    leadership.fetched(
        replica,
        broker_epoch=ALIVE[replica] if broker_epoch is None else broker_epoch,
        offset=offset,
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        now_ms=now_ms,
        is_sent_records=is_sent_records,
    )


def wanted(
    leadership: Leadership,
    *,
    high_watermark: int = 0,
    end_offset: int = 100,
    now_ms: int = 0,
    alive: dict[int, int] | None = None,
) -> IsrChange | None:
    return leadership.wanted_change(
        high_watermark=high_watermark,
        end_offset=end_offset,
        alive=ALIVE if alive is None else alive,
        lag_ms_max=LAG_MS,
        now_ms=now_ms,
    )


# -- the high watermark ---------------------------------------------------------------


def test_the_high_watermark_is_the_smallest_end_of_those_in_sync() -> None:
    leadership = lead()
    fetch(leadership, 2, 80)
    fetch(leadership, 3, 60)
    assert leadership.high_watermark(0, own_offset=100) == 60
    fetch(leadership, 3, 90)
    assert leadership.high_watermark(60, own_offset=100) == 80
    assert leadership.high_watermark(60, own_offset=70) == 70


def test_a_member_that_has_not_fetched_in_this_epoch_holds_it_back() -> None:
    leadership = lead()
    fetch(leadership, 2, 100)
    assert leadership.high_watermark(40, own_offset=100) == 40


def test_it_never_goes_back() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 2, 100)
    assert leadership.high_watermark(0, own_offset=100) == 100
    fetch(leadership, 2, 10, broker_epoch=21)
    assert leadership.high_watermark(100, own_offset=100) == 100


def test_a_replica_out_of_sync_does_not_count() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 2, 100)
    fetch(leadership, 3, 5)
    assert leadership.high_watermark(0, own_offset=100) == 100


def test_below_min_isr_it_stands_still() -> None:
    leadership = lead(isr=(1,), min_isr=2)
    assert leadership.high_watermark(40, own_offset=100) == 40
    assert not leadership.has_enough_in_sync


def test_min_isr_is_never_more_than_there_are_replicas() -> None:
    leadership = lead(isr=(1,), replicas=(1,), min_isr=2)
    assert leadership.high_watermark(0, own_offset=100) == 100


def test_a_proposed_shrink_does_not_move_it_before_it_is_written() -> None:
    leadership = lead()
    fetch(leadership, 2, 100)
    fetch(leadership, 3, 60)
    leadership.propose(IsrChange((1, 2), version=4))
    assert leadership.high_watermark(60, own_offset=100) == 60
    leadership.adopt(replicas=(1, 2, 3), isr=(1, 2), min_isr=2, version=5)
    assert leadership.high_watermark(60, own_offset=100) == 100


def test_a_proposed_member_counts_before_it_is_written() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 2, 100)
    fetch(leadership, 3, 60)
    leadership.propose(IsrChange((1, 2, 3), version=4, joining=((3, 30),)))
    assert leadership.high_watermark(60, own_offset=100) == 60


def test_a_proposed_member_does_not_make_enough() -> None:
    leadership = lead(isr=(1,), min_isr=2)
    fetch(leadership, 2, 100)
    leadership.propose(IsrChange((1, 2), version=4, joining=((2, 20),)))
    assert leadership.high_watermark(60, own_offset=100) == 60
    assert not leadership.has_enough_in_sync


def test_clients_may_rely_on_it_from_the_start_of_the_leadership_on() -> None:
    leadership = lead(start_offset=50)
    assert not leadership.is_settled(49)
    assert leadership.is_settled(50)


def test_a_replica_that_was_taken_away_and_given_back_begins_anew() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 3, 100)
    leadership.adopt(replicas=(1, 2), isr=(1, 2), min_isr=2, version=5)
    leadership.adopt(replicas=(1, 2, 3), isr=(1, 2), min_isr=2, version=6)
    assert wanted(leadership) is None


# -- writing --------------------------------------------------------------------------


def test_one_change_is_written_at_a_time() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 3, 100)
    change = wanted(leadership)
    assert change is not None
    leadership.propose(change)
    assert wanted(leadership) is None
    leadership.withdraw(change)
    assert wanted(leadership) == change


def test_an_unknown_outcome_stays_pending_until_the_state_moves_on() -> None:
    leadership = lead()
    fetch(leadership, 2, 100)
    fetch(leadership, 3, 60)
    leadership.propose(IsrChange((1, 2), version=4))
    assert not leadership.adopt(replicas=(1, 2, 3), isr=(1, 2, 3), min_isr=2, version=4)
    assert leadership.pending is not None
    assert leadership.adopt(replicas=(1, 2, 3), isr=(1, 2, 3), min_isr=2, version=5)
    assert leadership.pending is None


def test_an_older_state_is_no_news() -> None:
    leadership = lead()
    assert not leadership.adopt(replicas=(1, 2, 3), isr=(1,), min_isr=1, version=3)
    assert leadership.isr == (1, 2, 3)


def test_min_isr_is_that_of_the_state() -> None:
    leadership = lead(isr=(1,), min_isr=2)
    assert not leadership.has_enough_in_sync
    leadership.adopt(replicas=(1, 2, 3), isr=(1,), min_isr=1, version=5)
    assert leadership.has_enough_in_sync
    assert leadership.is_alone


# -- divergence -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        (-1, 0, None),
        (5, 100, None),
        (5, 50, None),
        (5, 101, Divergence(5, 100)),
        (3, 40, None),
        (3, 41, Divergence(3, 40)),
        # An epoch that we do not know: the one before it, and its end.
        (4, 45, Divergence(3, 40)),
        (4, 30, Divergence(3, 40)),
    ],
)
def test_a_reader_diverges_by_epoch_and_offset(
    last_epoch: int, offset: int, diverging: Divergence | None
) -> None:
    epochs = EpochCache([(2, 0), (3, 10), (5, 40)], lambda: 100)
    assert find_divergence(epochs, last_epoch=last_epoch, offset=offset) == diverging


def test_the_low_watermark_is_where_the_last_log_in_sync_starts() -> None:
    leadership = lead(isr=(1, 2))
    fetch(leadership, 3, 10, log_start_offset=1)
    assert leadership.low_watermark(7) == -1
    fetch(leadership, 2, 10, log_start_offset=4)
    assert leadership.low_watermark(7) == 4
    assert leadership.low_watermark(3) == 3
    # Who may be in sync the next moment counts, too.
    leadership.propose(IsrChange((1, 2, 3), version=4))
    assert leadership.low_watermark(7) == 1


def test_a_follower_that_asks_for_the_same_records_again_and_again_cannot_use_them() -> None:
    leadership = lead()
    for _ in range(3):
        fetch(leadership, 2, 40, is_sent_records=True)
        assert not leadership.is_stuck(2)
    fetch(leadership, 2, 40, is_sent_records=True)
    assert leadership.is_stuck(2)
    fetch(leadership, 2, 41, is_sent_records=True)
    assert not leadership.is_stuck(2)


def test_a_follower_that_is_sent_nothing_is_not_stuck() -> None:
    leadership = lead()
    for _ in range(6):
        # At the end of the log, or held back by a throttle.
        fetch(leadership, 2, 40)
        assert not leadership.is_stuck(2)
