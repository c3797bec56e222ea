"""Moves one member from the tasks it owns towards its target, a safe step at a time. Pure.

An active task is assigned only when nobody runs it any more, and any task only when no other
thread of the same process holds it. So a member first revokes what is not in its target
(UNREVOKED_TASKS) and stays in its epoch until it reports that it has; then it moves to the
target's epoch and gets what is free; for the rest it waits (UNRELEASED_TASKS).
"""

from collections.abc import Callable

from millstream.coordinators.codecs.streams_changes import (
    CurrentTasks,
    OwnedTasks,
    StreamsMemberState,
    TaskAssignment,
    Tasks,
)
from millstream.coordinators.streams.group import JOINING_EPOCH
from millstream.coordinators.streams.tasks import (
    Task,
    TaskOwners,
    covers,
    each_task,
    overlap,
    tasks_of,
    with_epochs,
    without_epochs,
)
from millstream.errors import KafkaCode, KafkaError


def reconcile(
    current: CurrentTasks,
    *,
    process_id: str,
    target: TaskAssignment,
    target_epoch: int,
    others: Callable[[], TaskOwners],
    reported: TaskAssignment | None,
    is_acknowledged: bool = True,
) -> CurrentTasks:
    """The next step. `others` collects what the other members own, which most heartbeats need
    not know. `reported` is what the member reports to own; None: as it last reported.

    Until it has confirmed its last assignment (`is_acknowledged`), nothing is revoked: a client
    that is asked to revoke what it has not yet applied finds nothing to do and reports nothing.
    """
    match current.state:
        case StreamsMemberState.STABLE:
            if current.epoch == target_epoch:
                return current
            epoch = current.epoch
        case StreamsMemberState.UNREVOKED_TASKS:
            if not _has_revoked(reported, current):
                return current
            epoch = current.epoch + 1
        case StreamsMemberState.UNRELEASED_TASKS:
            epoch = current.epoch
        case StreamsMemberState.UNKNOWN:
            if reported is None or reported != TaskAssignment():
                raise KafkaError(
                    KafkaCode.FENCED_MEMBER_EPOCH,
                    "The member is in an unknown state. It must abandon all its tasks and rejoin.",
                )
            epoch = target_epoch
    after = _next_step(current, epoch, process_id, target, target_epoch, others, reported)
    if after.revoking and not is_acknowledged:
        return current
    is_same = (after.epoch, after.state, after.assigned, after.revoking) == (
        current.epoch,
        current.state,
        current.assigned,
        current.revoking,
    )
    return current if is_same else after


def _next_step(
    current: CurrentTasks,
    epoch: int,
    process_id: str,
    target: TaskAssignment,
    target_epoch: int,
    others: Callable[[], TaskOwners],
    reported: TaskAssignment | None,
) -> CurrentTasks:
    kept, revoking = _split(current.assigned, target)
    # The member's report may be older than its last assignment: while it applies one, it
    # reports less than it is about to own. So it is always asked first, unless it starts over
    # and owns nothing.
    if revoking and (current.epoch != JOINING_EPOCH or _still_has(reported, revoking)):
        return CurrentTasks(
            epoch, current.epoch, StreamsMemberState.UNREVOKED_TASKS, kept, revoking
        )
    active = {
        (subtopology_id, partition): at_epoch
        for subtopology_id, partitions in kept.active.items()
        for partition, at_epoch in partitions.items()
    }
    owners = others()
    is_waiting = False
    for task in each_task(target.active):
        if task in active:
            continue
        if owners.runs_anywhere(task) or owners.is_held_by(task, process_id):
            is_waiting = True
        else:
            active[task] = target_epoch
    standby, waits_for_standby = _released(target.standby, kept.standby, owners, process_id)
    warmup, waits_for_warmup = _released(target.warmup, kept.warmup, owners, process_id)
    is_waiting = is_waiting or waits_for_standby or waits_for_warmup
    return CurrentTasks(
        target_epoch,
        current.epoch,
        StreamsMemberState.UNRELEASED_TASKS if is_waiting else StreamsMemberState.STABLE,
        OwnedTasks(with_epochs(active.items()), standby, warmup),
        OwnedTasks(),
    )


def _split(assigned: OwnedTasks, target: TaskAssignment) -> tuple[OwnedTasks, OwnedTasks]:
    """What the member keeps, and what it has to revoke."""
    wanted = set(each_task(target.active))
    kept: dict[Task, int] = {}
    gone: dict[Task, int] = {}
    for subtopology_id, partitions in assigned.active.items():
        for partition, at_epoch in partitions.items():
            task = (subtopology_id, partition)
            (kept if task in wanted else gone)[task] = at_epoch
    kept_standby, gone_standby = _split_tasks(assigned.standby, target.standby)
    kept_warmup, gone_warmup = _split_tasks(assigned.warmup, target.warmup)
    return (
        OwnedTasks(with_epochs(kept.items()), kept_standby, kept_warmup),
        OwnedTasks(with_epochs(gone.items()), gone_standby, gone_warmup),
    )


def _split_tasks(has: Tasks, wanted: Tasks) -> tuple[Tasks, Tasks]:
    before, after = set(each_task(has)), set(each_task(wanted))
    return tasks_of(before & after), tasks_of(before - after)


def _released(
    wanted: Tasks, kept: Tasks, owners: TaskOwners, process_id: str
) -> tuple[Tasks, bool]:
    """The copies that the member may hold now, and whether it has to wait for others."""
    has = set(each_task(kept))
    free = {task for task in each_task(wanted) if not owners.is_held_by(task, process_id)}
    given = has | free
    return tasks_of(given), len(given) < len(set(each_task(wanted)))


def _has_revoked(reported: TaskAssignment | None, current: CurrentTasks) -> bool:
    """A report without the tasks that the member keeps is older than the request to revoke."""
    return (
        reported is not None
        and not _still_has(reported, current.revoking)
        and covers(reported, without_epochs(current.assigned))
    )


def _still_has(reported: TaskAssignment | None, revoking: OwnedTasks) -> bool:
    return reported is None or overlap(reported, without_epochs(revoking))
