"""One member's steps from what it has to what it should have."""

from collections.abc import Callable
from uuid import UUID

import pytest

from millstream.coordinators.codecs.changes import Assignment, CurrentAssignment, MemberState
from millstream.coordinators.consumer.reconcile import reconcile
from millstream.errors import KafkaError
from tests.coordinators.world import topic_id

A = topic_id(0)


def step(
    current: CurrentAssignment,
    target: Assignment,
    *,
    epoch: int = 5,
    reported: Assignment | None = None,
    owned: frozenset[int] = frozenset(),
) -> CurrentAssignment:
    owned_epoch: Callable[[UUID, int], int] = lambda topic, p: 3 if p in owned else -1  # noqa: E731
    return reconcile(
        current, target=target, target_epoch=epoch, owned_epoch=owned_epoch, reported=reported
    )


def stable(*partitions: int, epoch: int = 4) -> CurrentAssignment:
    assigned = {A: partitions} if partitions else {}
    return CurrentAssignment(epoch, epoch - 1, MemberState.STABLE, assigned, {})


def test_a_member_in_the_target_epoch_stays() -> None:
    current = stable(0, 1, epoch=5)
    assert step(current, {A: (0,)}) is current


def test_free_partitions_are_given_at_once() -> None:
    after = step(stable(0), {A: (0, 1)})
    assert after == CurrentAssignment(5, 4, MemberState.STABLE, {A: (0, 1)}, {})


def test_partitions_of_others_are_waited_for() -> None:
    after = step(stable(), {A: (0, 1)}, owned=frozenset({1}))
    assert (after.state, after.epoch, after.assigned) == (
        MemberState.UNRELEASED_PARTITIONS,
        5,
        {A: (0,)},
    )
    done = step(after, {A: (0, 1)}, owned=frozenset({0}))
    assert (done.state, done.assigned) == (MemberState.STABLE, {A: (0, 1)})


def test_partitions_are_taken_away_before_the_epoch_changes() -> None:
    after = step(stable(0, 1), {A: (1, 2)})
    assert after == CurrentAssignment(4, 4, MemberState.UNREVOKED_PARTITIONS, {A: (1,)}, {A: (0,)})
    assert step(after, {A: (1, 2)}) is after
    assert step(after, {A: (1, 2)}, reported={A: (0, 1)}) is after
    done = step(after, {A: (1, 2)}, reported={A: (1,)})
    assert done == CurrentAssignment(5, 4, MemberState.STABLE, {A: (1, 2)}, {})


def test_a_member_that_begins_anew_with_nothing_need_not_be_asked() -> None:
    joining = CurrentAssignment(0, 0, MemberState.STABLE, {A: (0, 1)}, {})
    after = step(joining, {A: (1,)}, reported={})
    assert (after.epoch, after.state, after.assigned) == (5, MemberState.STABLE, {A: (1,)})


def test_a_state_from_the_future_is_fenced_until_the_member_has_nothing() -> None:
    unknown = CurrentAssignment(4, 3, MemberState.UNKNOWN, {}, {})
    with pytest.raises(KafkaError):
        step(unknown, {A: (0,)}, reported={A: (0,)})
    assert step(unknown, {A: (0,)}, reported={}).assigned == {A: (0,)}
