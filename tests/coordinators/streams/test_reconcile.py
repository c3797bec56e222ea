"""One member's steps: revoke first, then take what is free."""

import pytest

from millstream.coordinators.codecs.streams_changes import (
    CurrentTasks,
    OwnedTasks,
    StreamsMemberState,
    TaskAssignment,
)
from millstream.coordinators.streams.reconcile import reconcile
from millstream.coordinators.streams.tasks import TaskOwners
from millstream.errors import KafkaCode, KafkaError

STABLE = StreamsMemberState.STABLE
UNREVOKED = StreamsMemberState.UNREVOKED_TASKS
UNRELEASED = StreamsMemberState.UNRELEASED_TASKS
NOTHING = OwnedTasks()


def step(
    current: CurrentTasks,
    target: TaskAssignment,
    *,
    target_epoch: int = 5,
    others: TaskOwners | None = None,
    reported: TaskAssignment | None = None,
    is_acknowledged: bool = True,
) -> CurrentTasks:
    return reconcile(
        current,
        process_id="p",
        target=target,
        target_epoch=target_epoch,
        others=lambda: others or TaskOwners(),
        reported=reported,
        is_acknowledged=is_acknowledged,
    )


def owned_by(process_id: str, owned: OwnedTasks) -> TaskOwners:
    owners = TaskOwners()
    owners.add(process_id, owned)
    return owners


def test_a_member_in_the_targets_epoch_stays_as_it_is() -> None:
    current = CurrentTasks(5, 4, STABLE, OwnedTasks({"0": {0: 5}}), NOTHING)
    assert step(current, TaskAssignment({"0": (0, 1)})) is current


def test_only_a_member_that_moves_on_needs_to_know_what_the_others_own() -> None:
    def others() -> TaskOwners:
        raise AssertionError("the tasks of all members were collected")

    owned = OwnedTasks({"0": {0: 4}})
    settled = CurrentTasks(5, 4, STABLE, owned, NOTHING)
    revoking = CurrentTasks(4, 4, UNREVOKED, NOTHING, owned)
    for current in (settled, revoking):
        after = reconcile(
            current,
            process_id="p",
            target=TaskAssignment(),
            target_epoch=5,
            others=others,
            reported=None,
        )
        assert after is current


def test_free_tasks_are_given_at_once_with_the_epoch_of_the_target() -> None:
    current = CurrentTasks(4, 3, STABLE, OwnedTasks({"0": {0: 2}}), NOTHING)
    after = step(current, TaskAssignment({"0": (0, 1)}, {"1": (0,)}))
    assert after == CurrentTasks(
        5, 4, STABLE, OwnedTasks({"0": {0: 2, 1: 5}}, {"1": (0,)}), NOTHING
    )


def test_a_member_revokes_before_it_moves_on() -> None:
    current = CurrentTasks(4, 3, STABLE, OwnedTasks({"0": {0: 2, 1: 2}}), NOTHING)
    target = TaskAssignment({"0": (0,)})
    asked = step(current, target)
    assert asked == CurrentTasks(
        4, 4, UNREVOKED, OwnedTasks({"0": {0: 2}}), OwnedTasks({"0": {1: 2}})
    )
    assert step(asked, target) is asked
    assert step(asked, target, reported=TaskAssignment({"0": (0, 1)})) is asked
    done = step(asked, target, reported=TaskAssignment({"0": (0,)}))
    assert done == CurrentTasks(5, 4, STABLE, OwnedTasks({"0": {0: 2}}), NOTHING)


def test_a_report_without_the_tasks_that_are_kept_is_too_old_to_count() -> None:
    asked = CurrentTasks(4, 4, UNREVOKED, OwnedTasks({"0": {0: 2}}), OwnedTasks({"0": {1: 2}}))
    assert step(asked, TaskAssignment({"0": (0,)}), reported=TaskAssignment()) is asked


def test_a_task_that_another_member_runs_is_waited_for() -> None:
    current = CurrentTasks(4, 3, STABLE, NOTHING, NOTHING)
    target = TaskAssignment({"0": (0, 1)})
    others = owned_by("q", OwnedTasks({"0": {1: 3}}))
    waiting = step(current, target, others=others)
    assert waiting == CurrentTasks(5, 4, UNRELEASED, OwnedTasks({"0": {0: 5}}), NOTHING)
    assert step(waiting, target, others=others) is waiting
    assert step(waiting, target).state is STABLE


def test_a_standby_may_run_elsewhere_but_not_in_the_same_process() -> None:
    current = CurrentTasks(4, 3, STABLE, NOTHING, NOTHING)
    target = TaskAssignment({}, {"1": (0,)})
    elsewhere = owned_by("q", OwnedTasks({"1": {0: 3}}))
    assert step(current, target, others=elsewhere).state is STABLE
    here = owned_by("p", OwnedTasks({"1": {0: 3}}))
    assert step(current, target, others=here).state is UNRELEASED
    # Another thread of the process has it as a standby, which uses the same directory.
    copy = owned_by("p", OwnedTasks({}, {"1": (0,)}))
    assert step(current, TaskAssignment({"1": (0,)}), others=copy).state is UNRELEASED
    assert step(current, target, others=copy).state is UNRELEASED


def test_a_standby_becomes_active_after_it_is_closed() -> None:
    current = CurrentTasks(4, 3, STABLE, OwnedTasks({}, {"1": (0,)}), NOTHING)
    target = TaskAssignment({"1": (0,)})
    asked = step(current, target)
    assert (asked.state, asked.revoking) == (UNREVOKED, OwnedTasks({}, {"1": (0,)}))
    done = step(asked, target, reported=TaskAssignment())
    assert done == CurrentTasks(5, 4, STABLE, OwnedTasks({"1": {0: 5}}), NOTHING)


def test_nothing_is_revoked_until_the_last_tasks_are_confirmed() -> None:
    current = CurrentTasks(4, 3, STABLE, OwnedTasks({"0": {0: 4}}), NOTHING)
    assert step(current, TaskAssignment(), is_acknowledged=False) is current
    # A report from before the last assignment frees nothing either.
    asked = step(current, TaskAssignment(), reported=TaskAssignment())
    assert asked.state is UNREVOKED


def test_a_member_that_starts_over_owns_nothing() -> None:
    fresh = CurrentTasks(0, 0, STABLE, OwnedTasks({"0": {0: 2, 1: 2}}), NOTHING)
    after = step(fresh, TaskAssignment({"0": (1,)}), reported=TaskAssignment())
    assert after == CurrentTasks(5, 0, STABLE, OwnedTasks({"0": {1: 2}}), NOTHING)


def test_a_member_in_an_unknown_state_must_rejoin() -> None:
    unknown = CurrentTasks(4, 3, StreamsMemberState.UNKNOWN, NOTHING, NOTHING)
    with pytest.raises(KafkaError) as refused:
        step(unknown, TaskAssignment())
    assert refused.value.code is KafkaCode.FENCED_MEMBER_EPOCH
    assert step(unknown, TaskAssignment(), reported=TaskAssignment()).epoch == 5
