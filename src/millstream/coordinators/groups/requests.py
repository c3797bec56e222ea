"""Which kind of group a request is for: classic, consumer, share or streams."""

from collections.abc import Sequence
from typing import Any

from millstream.coordinators.classic import protocol as classic_protocol
from millstream.coordinators.classic import rebalance
from millstream.coordinators.classic.group import ClassicGroup
from millstream.coordinators.classic.protocol import JoinRequest, Leaving, SyncRequest
from millstream.coordinators.classic.rebalance import JoinReply, SyncReply
from millstream.coordinators.consumer import heartbeat as consumer_protocol
from millstream.coordinators.consumer.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
)
from millstream.coordinators.consumer.heartbeat import HeartbeatReply, HeartbeatRequest
from millstream.coordinators.decision import Deadline, DeadlineKey, DeadlineKind, Decision, Env
from millstream.coordinators.groups import admin, migration
from millstream.coordinators.groups.state import Group, ShardState
from millstream.coordinators.share import heartbeat as share_protocol
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.share.heartbeat import ShareHeartbeatReply, ShareHeartbeatRequest
from millstream.coordinators.streams import epochs as streams_epochs
from millstream.coordinators.streams import heartbeat as streams_protocol
from millstream.coordinators.streams.group import StreamsGroup
from millstream.coordinators.streams.heartbeat import StreamsHeartbeat, StreamsReply
from millstream.errors import KafkaCode, KafkaError

# -- the classic protocol -------------------------------------------------------------


def join(state: ShardState, request: JoinRequest, env: Env) -> Decision[JoinReply]:
    classic_protocol.check_join(request, env)
    found = state.groups.get(request.group_id)
    if isinstance(found, ConsumerGroup | StreamsGroup):
        if isinstance(found, StreamsGroup) and found.members:
            raise KafkaError(
                KafkaCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Group {request.group_id} is a streams group. Stop its members first.",
            )
        if isinstance(found, ConsumerGroup) and found.members:
            return migration.join(found, request, env)
        return Decision(
            records=admin.group_tombstones(found), then=lambda env: join(state, request, env)
        )
    if isinstance(found, ShareGroup):
        text = f"Group {request.group_id} is a share group."
        raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL, text)
    if found is None:
        if request.member_id:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        found = ClassicGroup(request.group_id)
    decision = classic_protocol.join(found, request, env)
    state.groups[request.group_id] = found
    return decision


def sync(state: ShardState, group_id: str, request: SyncRequest, env: Env) -> Decision[SyncReply]:
    found = _known(state, group_id)
    if isinstance(found, ConsumerGroup):
        return migration.sync(found, request, env)
    return classic_protocol.sync(found, request, env)


def heartbeat(
    state: ShardState,
    group_id: str,
    *,
    member_id: str,
    instance_id: str | None,
    generation: int,
    env: Env,
) -> Decision[KafkaCode]:
    found = _known(state, group_id)
    if isinstance(found, ConsumerGroup):
        return migration.heartbeat(found, member_id, instance_id, generation, env)
    return classic_protocol.heartbeat(found, member_id, instance_id, generation, env)


def leave(
    state: ShardState, group_id: str, leaving: Sequence[Leaving], env: Env
) -> Decision[list[KafkaCode]]:
    found = _known(state, group_id)
    if isinstance(found, ConsumerGroup):
        return migration.leave(found, leaving, env)
    return classic_protocol.leave(found, leaving, env)


def _known(state: ShardState, group_id: str) -> ClassicGroup | ConsumerGroup:
    if not group_id:
        # Offsets may be committed under an empty name; members need a name.
        raise KafkaError(KafkaCode.INVALID_GROUP_ID)
    found = state.groups.get(group_id)
    if found is None or isinstance(found, ShareGroup | StreamsGroup):
        # For a member, a group that does not exist is one that does not know it.
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
    return found


# -- the consumer protocol ------------------------------------------------------------


def consumer_heartbeat(
    state: ShardState, request: HeartbeatRequest, env: Env
) -> Decision[HeartbeatReply]:
    if not env.settings.serves_consumer_protocol:
        raise KafkaError(KafkaCode.UNSUPPORTED_VERSION, "The consumer protocol is turned off.")
    consumer_protocol.check(request, env)
    found = state.groups.get(request.group_id)
    if consumer_protocol.is_leaving(request):
        if not isinstance(found, ConsumerGroup):
            raise _not_a_consumer_group(request.group_id)
        return _leave_consumer(state, found, request, env)
    if isinstance(found, ConsumerGroup):
        return consumer_protocol.heartbeat(found, request, env)
    if request.epoch != JOINING_EPOCH or isinstance(found, StreamsGroup):
        raise _not_a_consumer_group(request.group_id)
    if isinstance(found, ShareGroup):
        raise _not_a_consumer_group(request.group_id)
    if found is None:
        new = ConsumerGroup(request.group_id)
        decision = consumer_protocol.heartbeat(new, request, env)
        state.groups[request.group_id] = new
        return decision
    if admin.is_empty(found):
        return Decision(
            records=admin.group_tombstones(found),
            then=lambda env: consumer_heartbeat(state, request, env),
        )
    return migration.upgrade(found, env, lambda env: consumer_heartbeat(state, request, env))


def _not_a_consumer_group(group_id: str) -> KafkaError:
    text = f"Group {group_id} is not a consumer group."
    return KafkaError(KafkaCode.GROUP_ID_NOT_FOUND, text)


def _leave_consumer(
    state: ShardState, found: ConsumerGroup, request: HeartbeatRequest, env: Env
) -> Decision[HeartbeatReply]:
    decision = consumer_protocol.leave(found, request, env)
    is_gone = request.epoch != STATIC_LEAVING_EPOCH
    if is_gone and migration.can_downgrade(found, request.member_id, env):
        decision.records.clear()
        migration.downgrade(state, found, request.member_id, env, decision)
    return decision


def describe_consumer(state: ShardState, group_id: str) -> Decision[ConsumerGroup]:
    if not group_id:
        raise KafkaError(KafkaCode.INVALID_GROUP_ID)
    found = state.groups.get(group_id)
    if not isinstance(found, ConsumerGroup):
        raise KafkaError(
            KafkaCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} not found."
            if found is None
            else f"Group {group_id} is not a consumer group.",
        )
    return Decision(reply=found)


# -- share groups ---------------------------------------------------------------------


def share_heartbeat(
    state: ShardState, request: ShareHeartbeatRequest, env: Env
) -> Decision[ShareHeartbeatReply]:
    share_protocol.check(request, env)
    if request.epoch == LEAVING_EPOCH:
        return share_protocol.leave(share_group(state, request.group_id), request, env)
    if request.epoch != JOINING_EPOCH or request.group_id in state.groups:
        found = share_group(state, request.group_id)
        return share_protocol.heartbeat(found, request, env)
    new = ShareGroup(request.group_id)
    decision = share_protocol.heartbeat(new, request, env)
    state.groups[request.group_id] = new
    return decision


def share_group(state: ShardState, group_id: str) -> ShareGroup:
    if not group_id:
        raise KafkaError(KafkaCode.INVALID_GROUP_ID)
    found = state.groups.get(group_id)
    if not isinstance(found, ShareGroup):
        raise KafkaError(
            KafkaCode.GROUP_ID_NOT_FOUND,
            f"Share group {group_id} not found."
            if found is None
            else f"Group {group_id} is not a share group.",
        )
    return found


def share_group_or_new(state: ShardState, group_id: str) -> ShareGroup:
    """A new one is not in the state before its first record."""
    if group_id and group_id not in state.groups:
        return ShareGroup(group_id)
    return share_group(state, group_id)


# -- the streams protocol -------------------------------------------------------------


def streams_heartbeat(
    state: ShardState, request: StreamsHeartbeat, env: Env
) -> Decision[StreamsReply]:
    if not env.settings.streams.is_served:
        raise KafkaError(KafkaCode.UNSUPPORTED_VERSION, "The streams protocol is turned off.")
    streams_protocol.check(request, env)
    found = state.groups.get(request.group_id)
    if isinstance(found, StreamsGroup):
        if streams_protocol.is_leaving(request):
            return streams_protocol.leave(found, request)
        return streams_protocol.heartbeat(found, request, env)
    if request.epoch != JOINING_EPOCH:
        raise _no_streams_group(request.group_id, found)
    if found is None:
        new = StreamsGroup(request.group_id)
        decision = streams_protocol.heartbeat(new, request, env)
        state.groups[request.group_id] = new
        return decision
    if isinstance(found, ClassicGroup) and admin.is_empty(found):
        return Decision(
            records=admin.group_tombstones(found),
            then=lambda env: streams_heartbeat(state, request, env),
        )
    raise _no_streams_group(request.group_id, found)


def _no_streams_group(group_id: str, found: Group | None) -> KafkaError:
    text = f"Group {group_id} not found."
    if found is not None:
        text = f"Group {group_id} is not a streams group."
    return KafkaError(KafkaCode.GROUP_ID_NOT_FOUND, text)


def describe_streams(state: ShardState, group_id: str, env: Env) -> Decision[StreamsGroup]:
    if not env.settings.streams.is_served:
        raise KafkaError(KafkaCode.UNSUPPORTED_VERSION, "The streams protocol is turned off.")
    if not group_id:
        raise KafkaError(KafkaCode.INVALID_GROUP_ID)
    found = state.groups.get(group_id)
    if not isinstance(found, StreamsGroup):
        raise _no_streams_group(group_id, found)
    return Decision(reply=found)


# -- time -----------------------------------------------------------------------------


def deadline_is_over(state: ShardState, key: DeadlineKey, env: Env) -> Decision[None]:
    found = state.groups.get(key.group_id)
    if isinstance(found, ConsumerGroup):
        return _member_is_late(state, found, key, env)
    if isinstance(found, ShareGroup):
        decision: Decision[None] = Decision()
        if key.kind is DeadlineKind.MEMBER_SESSION and key.member_id in found.members:
            share_protocol.remove(found, key.member_id, env, decision)
        return decision
    if isinstance(found, StreamsGroup):
        return _streams_deadline_is_over(found, key, env)
    if isinstance(found, ClassicGroup):
        match key.kind:
            case DeadlineKind.SESSION:
                return rebalance.session_is_over(found, key.member_id, env)
            case DeadlineKind.JOIN:
                return rebalance.join_time_is_up(found, env)
            case DeadlineKind.SYNC:
                return rebalance.sync_time_is_up(found, env)
    return Decision()


def _streams_deadline_is_over(found: StreamsGroup, key: DeadlineKey, env: Env) -> Decision[None]:
    decision: Decision[None] = Decision()
    if key.kind is DeadlineKind.FIRST_TARGET:
        streams_epochs.first_target(found, env, decision)
    elif streams_protocol.must_go(found, key):
        streams_protocol.remove(found, key.member_id, decision)
    return decision


def _member_is_late(
    state: ShardState, found: ConsumerGroup, key: DeadlineKey, env: Env
) -> Decision[None]:
    decision: Decision[Any] = Decision()
    is_of_classic_group = key.kind in (DeadlineKind.SESSION, DeadlineKind.JOIN, DeadlineKind.SYNC)
    if is_of_classic_group or not consumer_protocol.must_go(found, key):
        return decision
    if migration.can_downgrade(found, key.member_id, env):
        migration.downgrade(state, found, key.member_id, env, decision)
    else:
        consumer_protocol.remove(found, key.member_id, env, decision)
    return decision


def deadlines_after_replay(state: ShardState, env: Env) -> list[Deadline]:
    """Every member gets a whole session timeout to find us again."""
    decision: Decision[None] = Decision()
    for found in state.groups.values():
        if isinstance(found, ConsumerGroup):
            consumer_protocol.deadlines_after_replay(found, env, decision)
            continue
        if isinstance(found, ShareGroup):
            share_protocol.deadlines_after_replay(found, env, decision)
            continue
        if isinstance(found, StreamsGroup):
            streams_protocol.deadlines_after_replay(found, env, decision)
            continue
        for member in found.members.values():
            rebalance.keep_alive(found, member, env, decision)
    return decision.deadlines
