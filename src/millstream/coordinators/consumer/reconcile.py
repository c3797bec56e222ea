"""Moves one member from what it owns towards its target, a safe step at a time. Pure.

A partition is assigned only when no member owns it any more. So a member first revokes what
is not in its target (UNREVOKED_PARTITIONS) and stays in its epoch until it reports that it
has; then it moves to the target's epoch and gets what is free; for the rest it waits
(UNRELEASED_PARTITIONS) until the others have revoked it.
"""

from collections.abc import Callable
from uuid import UUID

from millstream.coordinators.codecs.changes import Assignment, CurrentAssignment, MemberState
from millstream.coordinators.consumer.group import JOINING_EPOCH, UNOWNED, sorted_assignment
from millstream.errors import KafkaCode, KafkaError

OwnedEpoch = Callable[[UUID, int], int]


def reconcile(
    current: CurrentAssignment,
    *,
    target: Assignment,
    target_epoch: int,
    owned_epoch: OwnedEpoch,
    reported: Assignment | None,
    is_acknowledged: bool = True,
) -> CurrentAssignment:
    """The next step. `reported` is what the member reports to own; None: as it last reported.

    Until it has confirmed its last assignment (`is_acknowledged`), nothing is revoked: a
    client that is asked to revoke what it has not yet applied finds nothing to do and reports
    nothing, and we would wait in vain.
    """
    match current.state:
        case MemberState.STABLE:
            if current.epoch == target_epoch:
                return current
            epoch = current.epoch
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(reported, current.revoking):
                return current
            epoch = current.epoch + 1
        case MemberState.UNRELEASED_PARTITIONS:
            epoch = current.epoch
        case MemberState.UNKNOWN:
            if reported is None or reported:
                raise KafkaError(
                    KafkaCode.FENCED_MEMBER_EPOCH,
                    "The member is in an unknown state and must join again.",
                )
            epoch = target_epoch
    after = _next_step(current, epoch, target, target_epoch, owned_epoch, reported)
    if after.revoking and not is_acknowledged:
        return current
    if _is_same_but_for_previous(after, current):
        return current
    return after


def _next_step(
    current: CurrentAssignment,
    epoch: int,
    target: Assignment,
    target_epoch: int,
    owned_epoch: OwnedEpoch,
    reported: Assignment | None,
) -> CurrentAssignment:
    kept: dict[UUID, set[int]] = {}
    revoking: dict[UUID, set[int]] = {}
    is_waiting = False
    for topic_id in target.keys() | current.assigned.keys():
        wanted = set(target.get(topic_id, ()))
        had = set(current.assigned.get(topic_id, ()))
        kept[topic_id] = had & wanted
        revoking[topic_id] = had - wanted
    to_revoke = sorted_assignment(revoking)
    # The member's report may be older than its last assignment: while it applies one, it
    # reports less than it is about to own. So it is always asked first, unless it starts over
    # and owns nothing.
    if to_revoke and (current.epoch != JOINING_EPOCH or _still_has(reported, to_revoke)):
        return CurrentAssignment(
            epoch,
            current.epoch,
            MemberState.UNREVOKED_PARTITIONS,
            sorted_assignment(kept),
            to_revoke,
        )
    for topic_id, partitions in target.items():
        for partition in partitions:
            if partition in kept[topic_id]:
                continue
            if owned_epoch(topic_id, partition) == UNOWNED:
                kept[topic_id].add(partition)
            else:
                is_waiting = True
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return CurrentAssignment(target_epoch, current.epoch, state, sorted_assignment(kept), {})


def _still_has(reported: Assignment | None, revoking: Assignment) -> bool:
    if reported is None:
        return True
    return any(
        partition in revoking.get(topic_id, ())
        for topic_id, partitions in reported.items()
        for partition in partitions
    )


def _is_same_but_for_previous(one: CurrentAssignment, other: CurrentAssignment) -> bool:
    return (one.epoch, one.state, one.assigned, one.revoking) == (
        other.epoch,
        other.state,
        other.assigned,
        other.revoking,
    )
