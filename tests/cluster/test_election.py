"""Partition states and what follows from them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster import election
from millstream.cluster.election import Nodes
from millstream.cluster.state import LogEnd, PartitionState
from millstream.model import TopicPartition


def state(
    isr=(1, 2, 3), *, leader=None, replicas=(1, 2, 3), min_isr=2, elr=(), last_known_elr=(), **more
) -> PartitionState:
    if leader is None:
        leader = isr[0] if isr else -1
    return PartitionState(
        leader=leader,
        leader_epoch=5,
        isr=tuple(isr),
        replicas=replicas,
        version=7,
        min_isr=min_isr,
        elr=elr,
        last_known_elr=last_known_elr,
        **more,
    )


def nodes(*live, stopping=(), suspects=()) -> Nodes:
    return Nodes(frozenset(live), frozenset(stopping), frozenset(suspects))


def repaired(before, where, min_isr=2):
    return election.repaired(before, where, min_isr=min_isr)


def test_where_everybody_lives_nothing_is_to_be_done():
    assert repaired(state(), nodes(1, 2, 3)) is None


def test_a_dead_follower_leaves_the_isr_and_the_leader_stays_in_its_epoch():
    after = repaired(state(), nodes(1, 2))
    assert after == replace(state(), isr=(1, 2))


def test_a_dead_leaders_place_goes_to_the_next_of_the_assignment_that_is_in_sync():
    after = repaired(state(isr=(1, 3), elr=()), nodes(2, 3))
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (3, 6, (3,), (1,))


def test_who_leaves_an_isr_that_is_too_small_without_it_may_still_be_elected():
    alone = repaired(state(), nodes(1))
    assert (alone.isr, alone.elr) == ((1,), (2, 3))
    nobody = repaired(alone, nodes())
    assert (nobody.leader, nobody.isr, nobody.elr) == (-1, (), (1, 2, 3))
    back = repaired(nobody, nodes(3))
    assert (back.leader, back.isr, back.elr, back.leader_epoch) == (3, (3,), (1, 2), 7)
    grown = election.with_isr(back, (2, 3))
    assert (grown.isr, grown.elr) == ((2, 3), ())


def test_an_isr_that_is_large_enough_has_no_eligible_replicas_beside_it():
    assert repaired(state(), nodes(2, 3)).elr == ()


def test_one_replica_alone_comes_back_in_a_new_epoch():
    before = state(isr=(1,), replicas=(1,), min_isr=1)
    gone = repaired(before, nodes(), min_isr=1)
    assert (gone.leader, gone.isr, gone.elr) == (-1, (), (1,))
    back = repaired(gone, nodes(1), min_isr=1)
    assert (back.leader, back.isr, back.elr, back.leader_epoch) == (1, (1,), (), 7)


def test_a_suspect_leaves_isr_and_elr_and_is_only_remembered():
    after = repaired(state(isr=(), elr=(1, 2)), nodes(3, suspects=[1]))
    assert (after.elr, after.last_known_elr) == ((2,), (1,))
    after = repaired(state(isr=(1,), elr=(2,)), nodes(1, 2, suspects=[1, 2]))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (-1, (), (), (1, 2))
    assert election.awaited_for_recovery(after) == (1, 2)
    # In an ISR that is large enough without it, there is nothing to remember.
    after = repaired(state(), nodes(1, 2, 3, suspects=[3]))
    assert (after.isr, after.last_known_elr) == ((1, 2), ())


def test_the_longest_log_leads_when_all_may_have_lost_data():
    lost = state(isr=(), last_known_elr=(1, 2, 3))
    where = TopicPartition("t", 0)
    ends = {1: LogEnd(where, 5, 4, 100), 2: LogEnd(where, 5, 5, 10), 3: LogEnd(where, 5, 5, 10)}
    after = election.recovered(lost, ends)
    assert (after.leader, after.isr, after.last_known_elr) == (2, (2,), ())
    assert after.leader_epoch == 6
    assert election.awaited_for_recovery(after) == ()


def test_a_person_may_elect_whoever_is_there():
    lost = state(isr=(), last_known_elr=(1,))
    after = election.uncleanly_elected(lost, nodes(3))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (3, (3,), (), ())
    assert election.uncleanly_elected(state(), nodes(1, 2, 3)) is None
    assert election.uncleanly_elected(lost, nodes()) is None


def test_a_replica_that_a_move_adds_is_elected_uncleanly_only_where_no_other_is_alive():
    moving = election.reassigned(state(isr=(), replicas=(4, 3), min_isr=1), (1, 3))
    assert (moving.replicas, moving.adding) == ((1, 3, 4), (1,))
    assert election.uncleanly_elected(moving, nodes(1, 3)).leader == 3
    assert election.uncleanly_elected(moving, nodes(1, 2)).leader == 1


def test_a_stopping_node_gives_up_what_others_can_take_and_nothing_else():
    after = repaired(state(), nodes(1, 2, 3, stopping=[1]))
    assert (after.leader, after.isr) == (2, (2, 3))
    assert repaired(state(isr=(1,), elr=(2, 3)), nodes(1, 2, 3, stopping=[1])) is None


def test_another_min_isr_clears_the_elr_while_somebody_commits():
    after = repaired(state(isr=(1,), elr=(2,)), nodes(1, 2), min_isr=1)
    assert (after.min_isr, after.elr, after.isr) == (1, (), (1,))
    # Without an ISR nobody commits, and the ELR is all there is.
    after = repaired(state(isr=(), elr=(2,)), nodes(2), min_isr=1)
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())


def test_who_has_no_replica_is_in_no_isr():
    after = repaired(state(isr=(1, 2, 4), leader=1), nodes(1, 2, 3, 4))
    assert after.isr == (1, 2)


def test_the_first_of_the_assignment_is_preferred_if_it_can_lead():
    after = election.preferred(state(leader=2), nodes(1, 2, 3))
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1, 2, 3))
    assert election.preferred(state(leader=1), nodes(1, 2, 3)) is None
    assert election.preferred(state(isr=(2, 3)), nodes(1, 2, 3)) is None
    assert election.preferred(state(leader=2), nodes(1, 2, 3, stopping=[1])) is None


def test_a_reassignment_goes_on_until_every_new_replica_is_in_sync():
    moving = election.reassigned(state(), (4, 5, 1))
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert election.arrived(moving, nodes(1, 2, 3, 4, 5)) is None
    in_sync = election.with_isr(moving, (1, 2, 3, 4, 5))
    done = election.arrived(in_sync, nodes(1, 2, 3, 4, 5))
    assert (done.replicas, done.isr, done.adding, done.removing) == ((4, 5, 1), (4, 5, 1), (), ())
    # Another epoch: what a replica that has gone fetched before no longer counts.
    assert (done.leader, done.leader_epoch) == (1, 6)
    only_more = election.reassigned(state(), (1, 2, 3, 4))
    grown = election.arrived(election.with_isr(only_more, (1, 2, 3, 4)), nodes(1, 2, 3, 4))
    assert (grown.leader, grown.leader_epoch) == (1, 5)
    led_elsewhere = replace(in_sync, leader=2)
    assert election.arrived(led_elsewhere, nodes(1, 2, 3, 4, 5)).leader == 4


def test_a_reassignment_can_change_its_mind_and_be_called_off():
    moving = election.reassigned(state(), (4, 5, 1))
    elsewhere = election.reassigned(moving, (6,))
    assert (elsewhere.replicas, elsewhere.adding, elsewhere.removing) == (
        (6, 1, 2, 3),
        (6,),
        (1, 2, 3),
    )
    back = election.cancelled(election.with_isr(moving, (1, 2, 3, 4)), nodes(1, 2, 3, 4, 5))
    assert (set(back.replicas), set(back.isr)) == ({1, 2, 3}, {1, 2, 3})
    assert (back.adding, back.removing) == ((), ())
    assert (back.leader, back.leader_epoch) == (1, 6)
    fewer = election.reassigned(state(), (1, 2))
    kept = election.cancelled(fewer, nodes(1, 2, 3))
    assert (kept.leader, kept.leader_epoch) == (1, 5)
    assert election.cancelled(replace(moving, isr=(4,)), nodes(4)) is None


IDS = st.sets(st.integers(1, 5))


@st.composite
def states(draw):
    replicas = tuple(draw(st.permutations([1, 2, 3, 4, 5]))[: draw(st.integers(1, 5))])
    some = st.sets(st.sampled_from(replicas))
    min_isr = draw(st.integers(1, len(replicas)))
    isr = draw(some)
    elr = draw(some) - isr if len(isr) < min_isr else set()
    last_known = draw(some) - isr - elr if len(isr) < min_isr else set()
    leader = draw(st.sampled_from(sorted(isr))) if isr else -1
    return state(
        sorted(isr),
        leader=leader,
        replicas=replicas,
        min_isr=min_isr,
        elr=tuple(sorted(elr)),
        last_known_elr=tuple(sorted(last_known)),
    )


@given(states(), IDS, IDS, IDS)
def test_a_repair_keeps_every_promise_and_a_second_one_finds_nothing(before, live, off, lost):
    where = nodes(*live, stopping=off & live, suspects=lost - live)
    after = repaired(before, where, before.min_isr) or before
    # Only those that had everything may have it now.
    assert set(after.isr) <= {*before.isr, *before.elr}
    assert set(after.isr) <= live
    assert not set(after.elr) & {*after.isr, *where.suspects}
    if len(after.isr) >= after.min_isr:
        assert after.elr == ()
    else:
        # Nobody who had everything is forgotten.
        kept = {*after.isr, *after.elr, *after.last_known_elr}
        assert {*before.isr, *before.elr} - {*after.isr} <= kept
    assert (after.leader in after.isr) if after.leader != -1 else not after.isr
    assert after.leader_epoch - before.leader_epoch == (after.leader != before.leader)
    assert repaired(after, where, before.min_isr) is None


@pytest.mark.parametrize("live", [(), (1,), (1, 2), (1, 2, 3)])
def test_nobody_outside_isr_and_elr_is_ever_elected(live):
    before = state(isr=(), elr=(), last_known_elr=(1, 2))
    assert repaired(before, nodes(*live)) is None


def test_a_damaged_follower_leaves_and_what_it_fetched_before_counts_no_more():
    after = election.given_up(state(), 3, nodes(1, 2, 3))
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (1, 6, (1, 2), ())


def test_a_damaged_leaders_place_goes_to_one_in_sync():
    after = election.given_up(state(), 1, nodes(1, 2, 3))
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (2, 3))


def test_a_damaged_replica_cannot_be_elected_though_it_left_too_small_an_isr():
    after = election.given_up(state(isr=(1, 3)), 3, nodes(1, 3))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (1, (1,), (), (3,))
    later = election.given_up(state(isr=(1,), elr=(2, 3)), 1, nodes(1, 2))
    assert (later.leader, later.isr, later.elr, later.last_known_elr) == (2, (2,), (3,), (1,))


@pytest.mark.parametrize(
    ("before", "live"),
    [
        (state(isr=(1,), min_isr=1), (1, 2, 3)),
        (state(isr=(1, 2)), (1,)),
        (state(isr=(2, 3), leader=2), (1,)),
        (state(isr=(), elr=(1,)), (1, 2)),
    ],
)
def test_a_damaged_replica_stays_as_it_is_while_nobody_else_leads_or_can(before, live):
    assert election.given_up(before, 1, nodes(*live)) is None
