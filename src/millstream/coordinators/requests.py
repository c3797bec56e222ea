"""Which kind of group a request is for: classic, or of the consumer protocol."""

from collections.abc import Sequence

from millstream.coordinators import admin, group, rebalance
from millstream.coordinators.classic import ClassicGroup
from millstream.coordinators.consumer import ConsumerGroup
from millstream.coordinators.decision import Deadline, DeadlineKey, DeadlineKind, Decision, Env
from millstream.coordinators.group import JoinRequest, Leaving, SyncRequest
from millstream.coordinators.rebalance import JoinReply, SyncReply
from millstream.coordinators.state import ShardState
from millstream.errors import KafkaCode, KafkaError


def join(state: ShardState, request: JoinRequest, env: Env) -> Decision[JoinReply]:
    group.check_join(request, env)
    found = state.groups.get(request.group_id)
    if isinstance(found, ConsumerGroup):
        if found.members:
            raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL)
        return Decision(
            records=admin.group_tombstones(found), then=lambda env: join(state, request, env)
        )
    if found is None:
        if request.member_id:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        found = ClassicGroup(request.group_id)
    decision = group.join(found, request, env)
    state.groups[request.group_id] = found
    return decision


def sync(state: ShardState, group_id: str, request: SyncRequest, env: Env) -> Decision[SyncReply]:
    return group.sync(_classic(state, group_id), request, env)


def heartbeat(
    state: ShardState,
    group_id: str,
    *,
    member_id: str,
    instance_id: str | None,
    generation: int,
    env: Env,
) -> Decision[KafkaCode]:
    return group.heartbeat(_classic(state, group_id), member_id, instance_id, generation, env)


def leave(
    state: ShardState, group_id: str, leaving: Sequence[Leaving], env: Env
) -> Decision[list[KafkaCode]]:
    return group.leave(_classic(state, group_id), leaving, env)


def _classic(state: ShardState, group_id: str) -> ClassicGroup:
    found = state.groups.get(group_id)
    if not isinstance(found, ClassicGroup):
        # To a member, a group that is not there is one that does not know it.
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
    return found


def deadline_is_over(state: ShardState, key: DeadlineKey, env: Env) -> Decision[None]:
    found = state.groups.get(key.group_id)
    if isinstance(found, ClassicGroup):
        match key.kind:
            case DeadlineKind.SESSION:
                return group.session_is_over(found, key.member_id, env)
            case DeadlineKind.JOIN:
                return rebalance.join_time_is_up(found, env)
            case DeadlineKind.SYNC:
                return rebalance.sync_time_is_up(found, env)
    return Decision()


def deadlines_after_replay(state: ShardState, env: Env) -> list[Deadline]:
    """Every member gets a whole session to find us again."""
    decision: Decision[None] = Decision()
    for found in state.groups.values():
        if isinstance(found, ClassicGroup):
            for member in found.members.values():
                rebalance.keep_alive(found, member, env, decision)
    return decision.deadlines
