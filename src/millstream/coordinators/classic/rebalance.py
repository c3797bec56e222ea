"""How a classic group moves from one generation to the next.

    Empty, Stable --a member joins, changes or leaves--> PreparingRebalance
    PreparingRebalance --all have joined, or time is up--> CompletingRebalance
    CompletingRebalance --the leader sends the assignment--> Stable

Every function works on the group and adds to the decision: replies to waiting members,
deadlines, and the record once there is something to store.
"""

from typing import Any, Final

from millstream.coordinators.classic.group import ClassicGroup, ClassicMember, ClassicState
from millstream.coordinators.codecs.changes import GroupChange
from millstream.coordinators.decision import Deadline, DeadlineKey, DeadlineKind, Decision, Env
from millstream.errors import KafkaCode
from millstream.lazy_dataclass import dataclass

# A new member cannot send heartbeats while its join waits; it gets this long.
NEW_MEMBER_TIMEOUT_MS: Final = 300_000


@dataclass(slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinReply:
    code: KafkaCode = KafkaCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    member_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(slots=True)
class SyncReply:
    code: KafkaCode = KafkaCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


def join_reply(group: ClassicGroup, member: ClassicMember) -> JoinReply:
    """The current generation as this member sees it: only the leader sees all members."""
    reply = JoinReply(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
        member_id=member.member_id,
    )
    if group.leader_id == member.member_id:
        reply.members = joined_members(group)
    return reply


def joined_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(each.member_id, each.instance_id, each.metadata(group.protocol_name))
        for each in group.members.values()
    )


# -- deadlines ------------------------------------------------------------------------


def session_key(group_id: str, member_id: str) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.SESSION, group_id, member_id)


def keep_alive(
    group: ClassicGroup, member: ClassicMember, env: Env, decision: Decision[Any]
) -> None:
    key = session_key(group.group_id, member.member_id)
    decision.deadlines.append(Deadline(key, env.uptime_ms + member.session_timeout_ms))


def _end_session(group: ClassicGroup, member_id: str, decision: Decision[Any]) -> None:
    decision.deadlines.append(Deadline(session_key(group.group_id, member_id), None))


def _set_phase_end(
    group: ClassicGroup, kind: DeadlineKind, at_ms: int | None, decision: Decision[Any]
) -> None:
    decision.deadlines.append(Deadline(DeadlineKey(kind, group.group_id, ""), at_ms))


# -- PreparingRebalance ---------------------------------------------------------------


def rebalance_or_complete(group: ClassicGroup, env: Env, decision: Decision[Any]) -> None:
    """Something about the members changed: start a rebalance, or continue the current one."""
    if group.state is ClassicState.PREPARING_REBALANCE:
        complete_if_all_joined(group, env, decision)
    else:
        prepare_rebalance(group, env, decision)


def prepare_rebalance(group: ClassicGroup, env: Env, decision: Decision[Any]) -> None:
    if group.state is ClassicState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            reply_sync(member, SyncReply(KafkaCode.REBALANCE_IN_PROGRESS), decision)
            keep_alive(group, member, env, decision)
    group.pending_sync.clear()
    _set_phase_end(group, DeadlineKind.SYNC, None, decision)
    delay_ms = env.settings.initial_rebalance_delay_ms
    is_first = group.state is ClassicState.EMPTY
    group.state = ClassicState.PREPARING_REBALANCE
    group.has_member_come = False
    if is_first and delay_ms > 0:
        delay_ms = max(delay_ms, group.first_wait_ms)
        wait_max_ms = min(group.rebalance_timeout_ms, env.settings.initial_rebalance_wait_max_ms)
        group.initial_wait_left_ms = max(wait_max_ms - delay_ms, 0)
        _set_phase_end(group, DeadlineKind.JOIN, env.uptime_ms + delay_ms, decision)
        return
    end_ms = env.uptime_ms + group.rebalance_timeout_ms
    _set_phase_end(group, DeadlineKind.JOIN, end_ms, decision)
    complete_if_all_joined(group, env, decision)


def complete_if_all_joined(group: ClassicGroup, env: Env, decision: Decision[Any]) -> None:
    if group.initial_wait_left_ms is None and group.is_joined_by_all:
        complete_join(group, env, decision)


def join_time_is_up(group: ClassicGroup, env: Env) -> Decision[None]:
    decision: Decision[None] = Decision()
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return decision
    left_ms = group.initial_wait_left_ms
    if left_ms and group.has_member_come:
        # Members keep joining: wait once more, but not beyond the rebalance timeout.
        extension_ms = env.settings.initial_rebalance_extension_ms
        if extension_ms is None:
            extension_ms = env.settings.initial_rebalance_delay_ms
        delay_ms = min(extension_ms, left_ms)
        group.initial_wait_left_ms = left_ms - delay_ms
        group.has_member_come = False
        _set_phase_end(group, DeadlineKind.JOIN, env.uptime_ms + delay_ms, decision)
        return decision
    complete_join(group, env, decision)
    return decision


def complete_join(group: ClassicGroup, env: Env, decision: Decision[Any]) -> None:
    """Start the next generation with the members that have joined."""
    group.initial_wait_left_ms = None
    _set_phase_end(group, DeadlineKind.JOIN, None, decision)
    for member in [m for m in group.members.values() if m.join_ticket is None]:
        if member.instance_id is None:
            group.remove(member.member_id)
            _end_session(group, member.member_id, decision)
    if group.members and not _elect_leader(group):
        # Only static members, none of them back yet: their session timeouts limit the wait.
        end_ms = env.uptime_ms + group.rebalance_timeout_ms
        _set_phase_end(group, DeadlineKind.JOIN, end_ms, decision)
        return
    group.generation += 1
    if not group.members:
        become_empty(group, env, decision)
        return
    group.protocol_name = group.select_protocol()
    group.note_subscriptions()
    group.state = ClassicState.COMPLETING_REBALANCE
    for member in group.members.values():
        reply_join(member, join_reply(group, member), decision)
        keep_alive(group, member, env, decision)
        member.is_new = False
    group.pending_sync = set(group.members)
    end_ms = env.uptime_ms + group.rebalance_timeout_ms
    _set_phase_end(group, DeadlineKind.SYNC, end_ms, decision)


def _elect_leader(group: ClassicGroup) -> bool:
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.join_ticket is not None:
        return True
    for member in group.members.values():
        if member.join_ticket is not None:
            group.leader_id = member.member_id
            return True
    return False


def become_empty(group: ClassicGroup, env: Env, decision: Decision[Any]) -> None:
    group.protocol_name = None
    group.leader_id = None
    group.state = ClassicState.EMPTY
    decision.records.append(GroupChange(group.group_id, group.stored({}, env.now_ms)))


# -- CompletingRebalance --------------------------------------------------------------


def sync_time_is_up(group: ClassicGroup, env: Env) -> Decision[None]:
    """Remove members that did not fetch their assignment."""
    decision: Decision[None] = Decision()
    if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
        return decision
    late = [member_id for member_id in group.pending_sync if member_id in group.members]
    for member_id in late:
        group.remove(member_id)
        _end_session(group, member_id, decision)
    if late:
        prepare_rebalance(group, env, decision)
    return decision


def synced(group: ClassicGroup, member_id: str, decision: Decision[Any]) -> None:
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        _set_phase_end(group, DeadlineKind.SYNC, None, decision)


# -- members that leave ---------------------------------------------------------------


def session_is_over(group: ClassicGroup, member_id: str, env: Env) -> Decision[None]:
    """A member was silent for its session timeout, or never joined again with its new id."""
    decision: Decision[None] = Decision()
    if member_id in group.pending_members:
        remove_pending(group, member_id, env, decision)
        return decision
    member = group.members.get(member_id)
    if member is None:
        return decision
    is_waiting = member.join_ticket is not None or member.sync_ticket is not None
    if is_waiting and not member.is_new:
        # It waits for us, so it is not silent.
        keep_alive(group, member, env, decision)
        return decision
    remove_member(group, member_id, env, decision)
    return decision


def remove_member(group: ClassicGroup, member_id: str, env: Env, decision: Decision[Any]) -> None:
    """A member left or fell silent; the others share its partitions."""
    member = group.remove(member_id)
    _end_session(group, member_id, decision)
    reply_join(member, JoinReply(KafkaCode.UNKNOWN_MEMBER_ID, member_id=member_id), decision)
    reply_sync(member, SyncReply(KafkaCode.UNKNOWN_MEMBER_ID), decision)
    rebalance_or_complete(group, env, decision)


def remove_pending(group: ClassicGroup, member_id: str, env: Env, decision: Decision[Any]) -> None:
    group.pending_members.pop(member_id, None)
    _end_session(group, member_id, decision)
    if group.state is ClassicState.PREPARING_REBALANCE:
        complete_if_all_joined(group, env, decision)


def reply_join(member: ClassicMember, reply: JoinReply, decision: Decision[Any]) -> None:
    if member.join_ticket is not None:
        decision.replies.append((member.join_ticket, reply))
        member.join_ticket = None


def reply_sync(member: ClassicMember, reply: SyncReply, decision: Decision[Any]) -> None:
    if member.sync_ticket is not None:
        decision.replies.append((member.sync_ticket, reply))
        member.sync_ticket = None
