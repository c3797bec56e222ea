"""Groups that change between the classic and the consumer protocol while they are active.

The first member of the consumer protocol turns a classic group of consumers into a
consumer group. Its classic members stay in it and continue to join, sync and send
heartbeats: for them, an epoch is a generation and the node is the leader. When the last
member of the consumer protocol leaves, the group is classic again.
"""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from millstream.coordinators.classic import rebalance
from millstream.coordinators.classic.group import ClassicGroup, ClassicMember
from millstream.coordinators.classic.protocol import JoinRequest, Leaving, SyncRequest
from millstream.coordinators.classic.rebalance import JoinReply, SyncReply
from millstream.coordinators.codecs.changes import (
    Assignment,
    Change,
    ClassicProtocols,
    ConsumerGroupChange,
    CurrentAssignment,
    CurrentMemberChange,
    GroupChange,
    MemberChange,
    MemberState,
    StoredConsumerGroup,
    StoredConsumerMember,
    StoredGroup,
    StoredMember,
    StoredTarget,
    TargetChange,
    TargetMemberChange,
)
from millstream.coordinators.codecs.embedded import (
    CONSUMER_PROTOCOL,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from millstream.coordinators.consumer import heartbeat as consumer_protocol
from millstream.coordinators.consumer.epochs import News, advance, member_tombstones
from millstream.coordinators.consumer.group import (
    UNOWNED,
    ConsumerGroup,
    ConsumerMember,
    no_assignment,
    sorted_assignment,
)
from millstream.coordinators.decision import Deadline, DeadlineKind, Decision, Env
from millstream.coordinators.groups.admin import group_tombstones
from millstream.coordinators.groups.state import ShardState
from millstream.errors import KafkaCode, KafkaError

# -- from classic to consumer ---------------------------------------------------------


def upgrade(group: ClassicGroup, env: Env, then: Callable[[Env], Decision[Any]]) -> Decision[Any]:
    """Turn a classic group into a consumer group, then continue with the member that joins."""
    is_allowed = env.settings.may_upgrade and group.is_of_consumers
    if not is_allowed or len(group.members) > env.settings.consumer_members_max:
        raise KafkaError(
            KafkaCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
        )
    decision: Decision[Any] = Decision(then=then)
    try:
        decision.records = _consumer_records(group, env)
    except ValueError as error:
        raise KafkaError(
            KafkaCode.GROUP_ID_NOT_FOUND,
            f"Group {group.group_id} cannot be upgraded: {error}.",
        ) from error
    for member in group.members.values():
        again = KafkaCode.REBALANCE_IN_PROGRESS
        rebalance.reply_join(member, JoinReply(again, member_id=member.member_id), decision)
        rebalance.reply_sync(member, SyncReply(again), decision)
        key = consumer_protocol.member_key(
            DeadlineKind.MEMBER_SESSION, group.group_id, member.member_id
        )
        decision.deadlines.append(Deadline(key, env.uptime_ms + member.session_timeout_ms))
    return decision


def _consumer_records(group: ClassicGroup, env: Env) -> list[Change]:
    """Raises ValueError if a member's bytes are not those of a consumer."""
    group_id, epoch = group.group_id, group.generation
    records: list[Change] = [
        GroupChange(group_id, None),
        ConsumerGroupChange(group_id, StoredConsumerGroup(epoch)),
    ]
    for member_id, member in group.members.items():
        subscription = decode_subscription(member.protocols[0][1])
        assigned = _by_id(decode_assignment(member.assignment), env)
        classic = ClassicProtocols(member.session_timeout_ms, member.protocols)
        stored = StoredConsumerMember(
            member.instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            tuple(sorted(set(subscription.topics))),
            None,
            member.rebalance_timeout_ms,
            None,
            classic,
        )
        current = CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned, {})
        records += [
            MemberChange(group_id, member_id, stored),
            TargetMemberChange(group_id, member_id, assigned),
            CurrentMemberChange(group_id, member_id, current),
        ]
    records.append(TargetChange(group_id, StoredTarget(epoch, env.now_ms)))
    return records


def _by_id(partitions: dict[str, list[int]], env: Env) -> Assignment:
    found: dict[UUID, list[int]] = {}
    for name, indexes in partitions.items():
        topic = env.image.topics.get(name)
        if topic is not None:
            found[topic.topic_id] = indexes
    return sorted_assignment(found)


def _by_name(assignment: Assignment, env: Env) -> dict[str, list[int]]:
    return {
        topic.name: list(partitions)
        for topic_id, partitions in assignment.items()
        if (topic := env.image.topics_by_id.get(topic_id)) is not None
    }


# -- from consumer to classic ---------------------------------------------------------


def can_downgrade(group: ConsumerGroup, without: str, env: Env) -> bool:
    left = [member for member_id, member in group.members.items() if member_id != without]
    return (
        bool(left)
        and env.settings.may_downgrade
        and len(left) <= env.settings.classic_members_max
        and all(member.speaks_classic for member in left)
    )


def downgrade(
    state: ShardState, group: ConsumerGroup, without: str, env: Env, decision: Decision[Any]
) -> None:
    """The last member of the consumer protocol leaves: the others rebalance."""
    left = {each: m for each, m in group.members.items() if each != without}
    for member_id in group.members:
        decision.records += member_tombstones(group.group_id, member_id)
    decision.records += group_tombstones(group)
    decision.records.append(GroupChange(group.group_id, _stored_group(group, left, env)))

    def rebalance_classic(env: Env) -> Decision[Any]:
        classic = state.groups[group.group_id]
        assert isinstance(classic, ClassicGroup)
        following: Decision[Any] = Decision()
        for member_id, member in left.items():
            assert member.stored.classic is not None
            # The record holds only the chosen protocol; the members know more.
            classic.members[member_id].set_protocols(member.stored.classic.protocols)
            rebalance.keep_alive(classic, classic.members[member_id], env, following)
        rebalance.prepare_rebalance(classic, env, following)
        return following

    decision.then = rebalance_classic


def _stored_group(group: ConsumerGroup, left: dict[str, ConsumerMember], env: Env) -> StoredGroup:
    scratch = ClassicGroup(group.group_id)
    for member_id, member in left.items():
        assert member.stored.classic is not None
        scratch.add(
            ClassicMember(
                member_id,
                member.stored.instance_id,
                member.stored.client_id,
                member.stored.client_host,
                member.stored.rebalance_timeout_ms,
                member.stored.classic.session_timeout_ms,
                member.stored.classic.protocols,
            ),
            CONSUMER_PROTOCOL,
        )
    scratch.protocol_name = scratch.select_protocol()
    return StoredGroup(
        CONSUMER_PROTOCOL,
        group.epoch,
        scratch.protocol_name,
        scratch.leader_id,
        env.now_ms,
        [
            StoredMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                each.session_timeout_ms,
                each.metadata(scratch.protocol_name),
                _assignment_bytes(left[each.member_id], env),
            )
            for each in scratch.members.values()
        ],
    )


def _assignment_bytes(member: ConsumerMember, env: Env) -> bytes:
    assert member.stored.classic is not None
    version = decode_subscription(member.stored.classic.protocols[0][1]).version
    return encode_assignment(_by_name(member.current.assigned, env), version=version)


# -- classic members of a consumer group ----------------------------------------------


def join(group: ConsumerGroup, request: JoinRequest, env: Env) -> Decision[JoinReply]:
    member_id = request.member_id or str(env.new_uuid())
    if len(group.members) >= env.settings.consumer_members_max and member_id not in group.members:
        raise KafkaError(KafkaCode.GROUP_MAX_SIZE_REACHED)
    _check_protocols(group, request)
    if not request.member_id and request.must_know_its_id and request.instance_id is None:
        return Decision(reply=JoinReply(KafkaCode.MEMBER_ID_REQUIRED, member_id=member_id))
    decision: Decision[JoinReply] = Decision()
    news = _news_of_join(group, request, member_id, env, decision)
    after = advance(group, news, env, decision)
    key = consumer_protocol.member_key
    group_id = group.group_id
    consumer_protocol.keep_alive(group, member_id, request.session_timeout_ms, env, decision)
    sync_end_ms = env.uptime_ms + request.rebalance_timeout_ms
    decision.deadlines += [
        Deadline(key(DeadlineKind.MEMBER_JOIN, group_id, member_id), None),
        Deadline(key(DeadlineKind.MEMBER_SYNC, group_id, member_id), sync_end_ms),
    ]
    decision.reply = JoinReply(
        generation=after.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=request.protocols[0][0],
        member_id=member_id,
    )
    return decision


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    shared = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.stored.classic is not None:
            shared &= {name for name, _ in member.stored.classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL or not shared:
        raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL)


def _news_of_join(
    group: ConsumerGroup,
    request: JoinRequest,
    member_id: str,
    env: Env,
    decision: Decision[JoinReply],
) -> News:
    try:
        subscription = decode_subscription(request.protocols[0][1])
    except ValueError as error:
        raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    known = group.members.get(member_id)
    current = known.current if known is not None else no_assignment()
    replaced_id = None
    if request.instance_id is not None:
        replaced_id = group.static_members.get(request.instance_id)
        if request.member_id and replaced_id is None:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        if request.member_id and replaced_id != member_id:
            raise KafkaError(KafkaCode.FENCED_INSTANCE_ID)
        if replaced_id == member_id:
            replaced_id = None
        if replaced_id is not None:
            old = group.members[replaced_id].current
            current = CurrentAssignment(0, 0, MemberState.STABLE, old.assigned, {})
            decision.records += member_tombstones(group.group_id, replaced_id)
    stored = StoredConsumerMember(
        request.instance_id,
        subscription.rack_id,
        request.client_id,
        request.client_host,
        tuple(sorted(set(subscription.topics))),
        None,
        request.rebalance_timeout_ms,
        None,
        ClassicProtocols(request.session_timeout_ms, request.protocols),
    )
    reported = _by_id(subscription.owned, env)
    return News(member_id, stored, current, known is None, replaced_id, reported)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember:
    if instance_id is not None:
        current_id = group.static_members.get(instance_id)
        if current_id is None:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        if current_id != member_id:
            raise KafkaError(KafkaCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None or not member.speaks_classic:
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
    return member


def sync(group: ConsumerGroup, request: SyncRequest, env: Env) -> Decision[SyncReply]:
    member = _classic_member(group, request.member_id, request.instance_id)
    classic = member.stored.classic
    assert classic is not None
    if request.generation != member.current.epoch:
        raise KafkaError(KafkaCode.ILLEGAL_GENERATION)
    for asked, held in (
        (request.protocol_type, CONSUMER_PROTOCOL),
        (request.protocol_name, classic.protocols[0][0]),
    ):
        if asked is not None and asked != held:
            raise KafkaError(KafkaCode.INCONSISTENT_GROUP_PROTOCOL)
    decision: Decision[SyncReply] = Decision()
    is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.epoch > member.current.epoch and not is_revoking:
        _expect_join(group, request.member_id, member, env, decision)
        decision.reply = SyncReply(KafkaCode.REBALANCE_IN_PROGRESS)
        return decision
    key = consumer_protocol.member_key(DeadlineKind.MEMBER_SYNC, group.group_id, request.member_id)
    decision.deadlines.append(Deadline(key, None))
    session_ms = classic.session_timeout_ms
    consumer_protocol.keep_alive(group, request.member_id, session_ms, env, decision)
    assignment = _assignment_bytes(member, env)
    decision.reply = SyncReply(
        KafkaCode.NONE, CONSUMER_PROTOCOL, classic.protocols[0][0], assignment
    )
    return decision


def _expect_join(
    group: ConsumerGroup,
    member_id: str,
    member: ConsumerMember,
    env: Env,
    decision: Decision[Any],
) -> None:
    """A classic member must join again, within its rebalance timeout."""
    key = consumer_protocol.member_key(DeadlineKind.MEMBER_JOIN, group.group_id, member_id)
    end_ms = env.uptime_ms + member.stored.rebalance_timeout_ms
    decision.deadlines.append(Deadline(key, end_ms, is_new_only=True))


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, env: Env
) -> Decision[KafkaCode]:
    member = _classic_member(group, member_id, instance_id)
    if generation != member.current.epoch:
        raise KafkaError(KafkaCode.ILLEGAL_GENERATION)
    decision: Decision[KafkaCode] = Decision(reply=KafkaCode.NONE)
    session_ms = consumer_protocol.session_timeout_ms(group, member, env)
    consumer_protocol.keep_alive(group, member_id, session_ms, env, decision)
    if _should_rejoin(group, member_id, member):
        _expect_join(group, member_id, member, env, decision)
        decision.reply = KafkaCode.REBALANCE_IN_PROGRESS
    return decision


def _should_rejoin(group: ConsumerGroup, member_id: str, member: ConsumerMember) -> bool:
    current = member.current
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    # It waits for partitions of others; when they are free it should fetch them.
    return not any(
        partition not in current.assigned.get(topic_id, ())
        and group.owned_epoch(topic_id, partition) != UNOWNED
        for topic_id, partitions in group.target.get(member_id, {}).items()
        for partition in partitions
    )


def leave(group: ConsumerGroup, leaving: Sequence[Leaving], env: Env) -> Decision[list[KafkaCode]]:
    """Members leave one by one, each in a separate step."""
    codes: list[KafkaCode] = []
    decision: Decision[list[KafkaCode]] = Decision(reply=codes)
    gone: set[str] = set()
    for who in leaving:
        member_id = who.member_id
        if not member_id and who.instance_id is not None:
            member_id = group.static_members.get(who.instance_id, "")
        member = group.members.get(member_id)
        if member is None or member_id in gone or (who.member_id and not member.speaks_classic):
            codes.append(KafkaCode.UNKNOWN_MEMBER_ID)
        else:
            consumer_protocol.remove(group, member_id, env, decision)
            gone.add(member_id)
            codes.append(KafkaCode.NONE)
    return decision
