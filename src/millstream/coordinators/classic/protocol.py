"""The classic group protocol: what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do.

Assignments belong to the members: their leader computes them, and they pass through here
unchanged. The steps from one generation to the next are in `rebalance`.
"""

from collections.abc import Sequence
from typing import Final

from millstream.coordinators.classic import rebalance
from millstream.coordinators.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    Protocols,
)
from millstream.coordinators.classic.rebalance import JoinReply, SyncReply
from millstream.coordinators.codecs.changes import GroupChange
from millstream.coordinators.codecs.table import encode
from millstream.coordinators.decision import Deadline, Decision, Env
from millstream.coordinators.sizes import protocols_bytes
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# That a member may support. Consumers have a handful of assignors, Connect three protocols.
_PROTOCOLS_MAX: Final = 100


@dataclass(slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # From JoinGroup 4 on, a new member first gets an id with which it joins again (KIP-394).
    must_know_its_id: bool = True
    # From JoinGroup 9 on, the response can say that there is nothing to assign (KIP-814).
    can_skip_assignment: bool = False
    # A client that learns its topics only later: as the leader of a new group's first
    # generation it would have nothing to assign.
    first_wait_ms: int = 0


def check_join(request: JoinRequest, env: Env) -> None:
    if not request.group_id:
        raise KafkaError(KafkaCode.INVALID_GROUP_ID)
    shortest, longest = env.settings.session_timeout_min_ms, env.settings.session_timeout_max_ms
    if not shortest <= request.session_timeout_ms <= longest:
        raise KafkaError(KafkaCode.INVALID_SESSION_TIMEOUT)
    if len(request.protocols) > _PROTOCOLS_MAX:
        text = f"A member may support {_PROTOCOLS_MAX} protocols, not {len(request.protocols)}."
        raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL, text)
    if protocols_bytes(request.protocols) > env.settings.batch_bytes_max:
        # Its group could never be stored.
        raise KafkaError(KafkaCode.INVALID_REQUEST, "the member's metadata is too large")


def join(group: ClassicGroup, request: JoinRequest, env: Env) -> Decision[JoinReply]:
    if not _has_room(group, request.member_id, env.settings.classic_members_max):
        raise KafkaError(KafkaCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports(request.protocol_type, request.protocols):
        raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id:
        return _join_known(group, request, env)
    if request.instance_id is not None:
        return _join_static(group, request, env)
    new_id = f"{request.client_id}-{env.new_uuid()}"
    if request.must_know_its_id:
        group.pending_members[new_id] = request.client_host
        group.has_member_come = True
        key = rebalance.session_key(group.group_id, new_id)
        return Decision(
            reply=JoinReply(KafkaCode.MEMBER_ID_REQUIRED, member_id=new_id),
            deadlines=[Deadline(key, env.uptime_ms + request.session_timeout_ms)],
        )
    return _add(group, request, new_id, env)


def _has_room(group: ClassicGroup, member_id: str, members_max: int) -> bool:
    member = group.members.get(member_id)
    match group.state:
        case ClassicState.EMPTY:
            return True
        case ClassicState.PREPARING_REBALANCE:
            if member is not None and member.join_ticket is not None:
                return True
            joined = [m for m in group.members.values() if m.join_ticket is not None]
            return len(joined) < members_max
        case ClassicState.COMPLETING_REBALANCE | ClassicState.STABLE:
            return member is not None or len(group.members) < members_max


def _add(
    group: ClassicGroup, request: JoinRequest, member_id: str, env: Env
) -> Decision[JoinReply]:
    member = ClassicMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
        is_new=True,
        join_ticket=env.ticket,
    )
    if not group.members:
        group.first_wait_ms = request.first_wait_ms
    group.add(member, request.protocol_type)
    group.has_member_come = True
    key = rebalance.session_key(group.group_id, member_id)
    decision: Decision[JoinReply] = Decision(
        deadlines=[Deadline(key, env.uptime_ms + rebalance.NEW_MEMBER_TIMEOUT_MS)]
    )
    rebalance.rebalance_or_complete(group, env, decision)
    return decision


def _join_known(group: ClassicGroup, request: JoinRequest, env: Env) -> Decision[JoinReply]:
    if request.member_id in group.pending_members:
        if request.instance_id is not None:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        return _add(group, request, request.member_id, env)
    member = group.member(request.member_id, request.instance_id)
    is_changed = member.protocols != request.protocols
    is_leader = group.leader_id == member.member_id
    match group.state:
        case ClassicState.EMPTY:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        case ClassicState.COMPLETING_REBALANCE if not is_changed:
            # Its first reply may have been lost: send the same again.
            return Decision(reply=rebalance.join_reply(group, member))
        case ClassicState.STABLE if not is_changed and not is_leader:
            return Decision(reply=rebalance.join_reply(group, member))
    # A leader joins a stable group again when something else changed, such as the topics.
    decision: Decision[JoinReply] = Decision()
    _renew(member, request, env, decision)
    rebalance.rebalance_or_complete(group, env, decision)
    return decision


def _renew(
    member: ClassicMember, request: JoinRequest, env: Env, decision: Decision[JoinReply]
) -> None:
    # The client gave up on the reply and sent the request again: it ignores the old one.
    old = JoinReply(KafkaCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    rebalance.reply_join(member, old, decision)
    member.set_protocols(request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.join_ticket = env.ticket


def _join_static(group: ClassicGroup, request: JoinRequest, env: Env) -> Decision[JoinReply]:
    """A static member without an id: new, or the same instance restarted (KIP-345)."""
    assert request.instance_id is not None
    new_id = f"{request.instance_id}-{env.new_uuid()}"
    old_id = group.static_members.get(request.instance_id)
    if old_id is None:
        return _add(group, request, new_id, env)
    decision: Decision[JoinReply] = Decision()
    old_leader_id = group.leader_id
    member = group.rename(request.instance_id, new_id)
    fenced = KafkaCode.FENCED_INSTANCE_ID
    rebalance.reply_join(member, JoinReply(fenced, member_id=old_id), decision)
    rebalance.reply_sync(member, SyncReply(fenced), decision)
    _renew(member, request, env, decision)
    member.client_id, member.client_host = request.client_id, request.client_host
    decision.deadlines.append(Deadline(rebalance.session_key(group.group_id, old_id), None))
    rebalance.keep_alive(group, member, env, decision)
    if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
        return _resume_static(group, member, request, old_leader_id, env, decision)
    # During a rebalance the leader may be assigning to the old id: start over.
    rebalance.rebalance_or_complete(group, env, decision)
    return decision


def _resume_static(
    group: ClassicGroup,
    member: ClassicMember,
    request: JoinRequest,
    old_leader_id: str | None,
    env: Env,
    decision: Decision[JoinReply],
) -> Decision[JoinReply]:
    """The same instance in a stable group gets its assignment back; no other member moves."""
    member.join_ticket = None
    reply = rebalance.join_reply(group, member)
    if request.can_skip_assignment:
        reply.skip_assignment = group.leader_id == member.member_id
    else:
        # A stable group would not distribute a new assignment. With the leader's old id in
        # the response, this member does not consider itself the leader.
        reply.leader_id = old_leader_id or ""
        reply.members = ()
    assignments = {each.member_id: each.assignment for each in group.members.values()}
    stored = group.stored(assignments, env.now_ms)
    decision.records.append(GroupChange(group.group_id, stored))
    decision.reply = reply
    return decision


@dataclass(slots=True)
class SyncRequest:
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    # By member id; only the leader sends any.
    assignments: dict[str, bytes]
    # False for a large request: others wait until it is answered.
    may_wait: bool = True


def sync(group: ClassicGroup, request: SyncRequest, env: Env) -> Decision[SyncReply]:
    member = _member_of_generation(
        group, request.member_id, request.instance_id, request.generation
    )
    for asked, held in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and asked != held:
            raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL)
    match group.state:
        case ClassicState.EMPTY:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        case ClassicState.PREPARING_REBALANCE:
            raise KafkaError(KafkaCode.REBALANCE_IN_PROGRESS)
        case ClassicState.STABLE:
            decision: Decision[SyncReply] = Decision(reply=_sync_reply(group, member.assignment))
            rebalance.synced(group, member.member_id, decision)
            rebalance.keep_alive(group, member, env, decision)
            return decision
    if not request.may_wait and group.leader_id != member.member_id:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "only the leader of a group assigns")
    decision = Decision()
    rebalance.reply_sync(member, SyncReply(KafkaCode.REBALANCE_IN_PROGRESS), decision)
    member.sync_ticket = env.ticket
    rebalance.synced(group, member.member_id, decision)
    if group.leader_id == member.member_id:
        _assign(group, request.assignments, env, decision)
    return decision


def _assign(
    group: ClassicGroup, assignments: dict[str, bytes], env: Env, decision: Decision[SyncReply]
) -> None:
    """The leader sent the assignment: store it, and answer the members that wait."""
    change = GroupChange(group.group_id, group.stored(assignments, env.now_ms))
    key, value = encode(change)
    # The batch around it takes less than 128 bytes.
    if len(key) + len(value or b"") + 128 > env.settings.batch_bytes_max:
        for member in group.members.values():
            rebalance.reply_sync(member, SyncReply(KafkaCode.UNKNOWN_SERVER_ERROR), decision)
        rebalance.prepare_rebalance(group, env, decision)
        return
    decision.records.append(change)
    for member in group.members.values():
        assignment = assignments.get(member.member_id, b"")
        rebalance.reply_sync(member, _sync_reply(group, assignment), decision)
        rebalance.keep_alive(group, member, env, decision)


def _sync_reply(group: ClassicGroup, assignment: bytes) -> SyncReply:
    return SyncReply(KafkaCode.NONE, group.protocol_type, group.protocol_name, assignment)


def _member_of_generation(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ClassicMember:
    member = group.member(member_id, instance_id)
    if generation != group.generation:
        raise KafkaError(KafkaCode.ILLEGAL_GENERATION)
    return member


def heartbeat(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, env: Env
) -> Decision[KafkaCode]:
    """Keep a member alive, and report a rebalance to it."""
    member = _member_of_generation(group, member_id, instance_id, generation)
    if group.state is ClassicState.EMPTY:
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
    is_preparing = group.state is ClassicState.PREPARING_REBALANCE
    decision = Decision(reply=KafkaCode.REBALANCE_IN_PROGRESS if is_preparing else KafkaCode.NONE)
    rebalance.keep_alive(group, member, env, decision)
    return decision


@dataclass(slots=True)
class Leaving:
    member_id: str
    instance_id: str | None


def leave(group: ClassicGroup, leaving: Sequence[Leaving], env: Env) -> Decision[list[KafkaCode]]:
    """One code for each member that leaves."""
    codes: list[KafkaCode] = []
    decision: Decision[list[KafkaCode]] = Decision(reply=codes)
    for who in leaving:
        try:
            _leave_one(group, who, env, decision)
            codes.append(KafkaCode.NONE)
        except KafkaError as error:
            codes.append(error.code)
    return decision


def _leave_one(
    group: ClassicGroup, who: Leaving, env: Env, decision: Decision[list[KafkaCode]]
) -> None:
    member_id = who.member_id
    if not member_id and who.instance_id is not None:
        # An administrator removes an instance, whatever its current member id is.
        member_id = group.static_members.get(who.instance_id, "")
    if member_id in group.pending_members:
        rebalance.remove_pending(group, member_id, env, decision)
        return
    group.member(member_id, who.instance_id)
    rebalance.remove_member(group, member_id, env, decision)
