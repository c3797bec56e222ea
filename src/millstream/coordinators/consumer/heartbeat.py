"""The consumer protocol (KIP-848): what ConsumerGroupHeartbeat does.

A member sends only heartbeats; the responses carry its epoch and, from a change until the
member confirms it, its assignment. The node computes the assignment.
"""

from dataclasses import replace
from typing import Any, Final

from millstream.coordinators.codecs.changes import (
    Assignment,
    CurrentAssignment,
    CurrentMemberChange,
    MemberState,
    StoredConsumerMember,
)
from millstream.coordinators.consumer.assignors import ASSIGNORS
from millstream.coordinators.consumer.epochs import (
    News,
    advance,
    member_tombstones,
    without_member,
)
from millstream.coordinators.consumer.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    covers,
    no_assignment,
)
from millstream.coordinators.consumer.pattern import PatternMatch
from millstream.coordinators.decision import Deadline, DeadlineKey, DeadlineKind, Decision, Env
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# While a group settles, members report often, so that partitions move quickly. Not more often:
# librdkafka gives up on a response that takes longer than the interval. Its members would repeat
# their requests to a busy node, and miss the responses.
_SHORTEST_INTERVAL_MS: Final = 200
_SETTLING_INTERVAL_MAX_MS: Final = 500
# That a member may subscribe to. Each is sorted, hashed and encoded while nobody else is served. A
# pattern that a client matches itself comes as names, too.
_TOPIC_NAMES_MAX: Final = 20_000


@dataclass(slots=True)
class HeartbeatRequest:
    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    # -1, and None below: unchanged since the member last sent it.
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    # The version of what the member may describe, and what its pattern matches. That is needed
    # where `unmatched_pattern` says so.
    visible_version: int = 0
    matched: PatternMatch | None = None
    # From version 1 on, members choose their own ids.
    must_bring_its_id: bool = True

    @property
    def is_full(self) -> bool:
        """The request is complete: the member joins, or lost track after an error."""
        has_subscription = self.topics is not None or self.pattern is not None
        return self.epoch == JOINING_EPOCH or (
            self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        )


@dataclass(slots=True)
class HeartbeatReply:
    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Assignment | None = None


def _refuse(text: str) -> KafkaError:
    return KafkaError(KafkaCode.INVALID_REQUEST, text)


def check(request: HeartbeatRequest, env: Env) -> None:
    if not request.group_id:
        raise _refuse("GroupId can't be empty.")
    if request.instance_id == "":
        raise _refuse("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _refuse("RackId can't be empty.")
    is_joining = request.epoch == JOINING_EPOCH
    if not request.member_id and (request.must_bring_its_id or not is_joining):
        raise _refuse("MemberId can't be empty.")
    if request.epoch < STATIC_LEAVING_EPOCH:
        raise _refuse("MemberEpoch is invalid.")
    if request.epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _refuse("InstanceId can't be null.")
    if is_joining:
        if request.rebalance_timeout_ms == -1:
            raise _refuse("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise _refuse("TopicPartitions must be empty when (re-)joining.")
        # An empty list is a subscription, too: to nothing yet.
        if request.topics is None and request.pattern is None:
            raise _refuse("SubscribedTopicNames or SubscribedTopicRegex must be set.")
    if request.assignor is not None and (
        request.assignor not in env.settings.assignors or request.assignor not in ASSIGNORS
    ):
        offered = ", ".join(env.settings.assignors)
        raise KafkaError(
            KafkaCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {offered}.",
        )
    if len(request.topics or ()) > _TOPIC_NAMES_MAX:
        raise _refuse(
            f"SubscribedTopicNames has {len(request.topics or ()):,} names, of which there may be "
            f"{_TOPIC_NAMES_MAX:,}. Subscribe to more topics with SubscribedTopicRegex, which the "
            "broker matches (in Java, a SubscriptionPattern instead of a Pattern)."
        )
    if sum(len(name) for name in request.topics or ()) > env.settings.batch_bytes_max // 2:
        raise _refuse("SubscribedTopicNames is too large.")


def unmatched_pattern(
    group: ConsumerGroup | None, request: HeartbeatRequest, topics_version: int
) -> str | None:
    """The pattern of which a heartbeat needs the matches: it is new, or topics or permissions
    have changed since it was matched. The caller has it matched, as that may take long."""
    if is_leaving(request):
        return None
    is_joining = request.epoch == JOINING_EPOCH
    if group is None:
        return (request.pattern or None) if is_joining else None
    member = group.members.get(
        group.static_members.get(request.instance_id or "", request.member_id)
    )
    if member is None and not is_joining:
        return None
    pattern = request.pattern
    if pattern is None and member is not None:
        pattern = member.stored.pattern
    seen = group.patterns_seen.get(pattern or "")
    return (pattern or None) if seen != (topics_version, request.visible_version) else None


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, env: Env
) -> Decision[HeartbeatReply]:
    """A member joins, stays alive or changes its subscription. `group` may be new and empty."""
    member_id = request.member_id or str(env.new_uuid())
    is_room = len(group.members) < env.settings.consumer_members_max
    if not is_room and member_id not in group.members:
        raise KafkaError(
            KafkaCode.GROUP_MAX_SIZE_REACHED,
            f"The group has its maximum of {env.settings.consumer_members_max} members.",
        )
    decision: Decision[HeartbeatReply] = Decision()
    news = _news(group, request, member_id, env, decision)
    before = news.current.assigned
    after = advance(group, news, env, decision)
    keep_alive(group, member_id, own_session_timeout_ms(group, env), env, decision)
    _limit_revocation(group, news, after, env, decision)
    # Until the member confirms its assignment, it may have missed the response: librdkafka gives
    # up on one that takes longer than the heartbeat interval, and sends the same request again.
    shows_assignment = (
        request.is_full
        or after.assigned != before
        or _keeps_others_waiting(group, member_id, after)
    )
    decision.reply = HeartbeatReply(
        member_id,
        after.epoch,
        _interval_ms(group, after, env, has_changed=bool(decision.records)),
        after.assigned if shows_assignment else None,
    )
    return decision


def _news(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    member_id: str,
    env: Env,
    decision: Decision[Any],
) -> News:
    known = _known_member(group, request, member_id)
    if known is None:
        stored = _stored(request, None)
        fresh = no_assignment()
        return _with_match(News(member_id, stored, fresh, True, None, request.owned), request)
    stored = _stored(request, known.stored)
    if request.epoch == JOINING_EPOCH:
        # It starts over and owns nothing: it may get its own partitions back.
        fresh = replace(no_assignment(), assigned=known.current.assigned)
        old_id = group.static_members.get(request.instance_id or "", member_id)
        replaced_id = old_id if old_id != member_id else None
        if replaced_id is not None:
            decision.records += member_tombstones(group.group_id, replaced_id)
            decision.deadlines += _no_deadlines(group, replaced_id)
        news = News(member_id, stored, fresh, False, replaced_id, request.owned)
    else:
        news = News(member_id, stored, known.current, False, None, request.owned)
    return _with_match(news, request)


def _with_match(news: News, request: HeartbeatRequest) -> News:
    news.visible_version, news.matched = request.visible_version, request.matched
    return news


def _known_member(
    group: ConsumerGroup, request: HeartbeatRequest, member_id: str
) -> ConsumerMember | None:
    """The member with this id, or None for a new one. Raises KafkaError."""
    is_joining = request.epoch == JOINING_EPOCH
    if request.instance_id is not None:
        current_id = group.static_members.get(request.instance_id)
        if current_id is None:
            if is_joining:
                return None
            text = f"Instance id {request.instance_id} is unknown."
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID, text)
        known = group.members[current_id]
        if current_id != member_id:
            if not is_joining:
                raise KafkaError(
                    KafkaCode.FENCED_INSTANCE_ID, f"{member_id} was fenced by {current_id}."
                )
            if not known.speaks_classic and known.current.epoch != STATIC_LEAVING_EPOCH:
                raise KafkaError(
                    KafkaCode.UNRELEASED_INSTANCE_ID,
                    f"Instance id {request.instance_id} is owned by {current_id}.",
                )
            return known
    else:
        found = group.members.get(member_id)
        if found is None:
            if is_joining:
                return None
            text = f"Member {member_id} is not a member of group {group.group_id}."
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID, text)
        known = found
    if not is_joining:
        _check_epoch(known.current, request)
    return known


def _check_epoch(current: CurrentAssignment, request: HeartbeatRequest) -> None:
    """Every epoch but the member's own is fenced; the one before it is not, if the member owns
    no more than it is assigned."""
    if request.epoch == current.epoch:
        return
    # The response with its new epoch may have been lost.
    is_one_behind = request.epoch == current.previous_epoch and request.owned is not None
    if is_one_behind and covers(current.assigned, request.owned or {}):
        return
    raise KafkaError(
        KafkaCode.FENCED_MEMBER_EPOCH,
        f"The member has epoch {request.epoch}, the coordinator knows {current.epoch}. "
        "It must give up its partitions and join again.",
    )


def _stored(request: HeartbeatRequest, known: StoredConsumerMember | None) -> StoredConsumerMember:
    base = known or StoredConsumerMember(None, None, "", "", (), None, -1, None)
    topics = base.topics if request.topics is None else tuple(sorted(set(request.topics)))
    pattern = base.pattern if request.pattern is None else request.pattern or None
    timeout_ms = request.rebalance_timeout_ms
    return StoredConsumerMember(
        instance_id=request.instance_id or base.instance_id,
        rack_id=request.rack_id or base.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=topics,
        pattern=pattern,
        rebalance_timeout_ms=base.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=request.assignor or base.assignor,
    )


def _interval_ms(
    group: ConsumerGroup, current: CurrentAssignment, env: Env, *, has_changed: bool
) -> int:
    """When the member is to report again.

    Soon after a change: others may be joining too, and partitions move at the speed of the
    reports. Then more and more slowly, up to the configured interval.
    """
    configured_ms = _own_setting_ms(
        group, "consumer.heartbeat.interval.ms", env, env.settings.consumer_heartbeat_interval_ms
    )
    quiet_ms = 0 if has_changed else max(env.now_ms - group.target_timestamp_ms, 0)
    interval_ms = max(quiet_ms // 2, _SHORTEST_INTERVAL_MS)
    is_settled = current.state is MemberState.STABLE and group.state_name == "Stable"
    if not is_settled:
        interval_ms = min(interval_ms, _SETTLING_INTERVAL_MAX_MS)
    return min(interval_ms, configured_ms)


# -- deadlines ------------------------------------------------------------------------


def member_key(kind: DeadlineKind, group_id: str, member_id: str) -> DeadlineKey:
    return DeadlineKey(kind, group_id, member_id)


def keep_alive(
    group: ConsumerGroup, member_id: str, session_ms: int, env: Env, decision: Decision[Any]
) -> None:
    key = member_key(DeadlineKind.MEMBER_SESSION, group.group_id, member_id)
    decision.deadlines.append(Deadline(key, env.uptime_ms + session_ms))


def _limit_revocation(
    group: ConsumerGroup,
    news: News,
    after: CurrentAssignment,
    env: Env,
    decision: Decision[Any],
) -> None:
    """Give a member its rebalance timeout to apply its new assignment."""
    key = member_key(DeadlineKind.MEMBER_REVOKE, group.group_id, news.member_id)
    is_late = _keeps_others_waiting(group, news.member_id, after)
    end_ms = env.uptime_ms + news.stored.rebalance_timeout_ms if is_late else None
    decision.deadlines.append(Deadline(key, end_ms, is_new_only=after == news.current))


def _keeps_others_waiting(group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> bool:
    is_revoking = current.state is MemberState.UNREVOKED_PARTITIONS
    return is_revoking or member_id in group.unacknowledged


def _no_deadlines(group: ConsumerGroup, member_id: str) -> list[Deadline]:
    kinds = (
        DeadlineKind.MEMBER_SESSION,
        DeadlineKind.MEMBER_REVOKE,
        DeadlineKind.MEMBER_JOIN,
        DeadlineKind.MEMBER_SYNC,
    )
    return [Deadline(member_key(kind, group.group_id, member_id), None) for kind in kinds]


# -- members that leave ---------------------------------------------------------------


def leave(group: ConsumerGroup, request: HeartbeatRequest, env: Env) -> Decision[HeartbeatReply]:
    """A member leaves; a static one may announce that it will be back."""
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        current_id = group.static_members.get(request.instance_id)
        if current_id is None:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        if current_id != request.member_id:
            raise KafkaError(KafkaCode.FENCED_INSTANCE_ID)
    if member is None:
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
    reply = HeartbeatReply(request.member_id, request.epoch)
    if request.epoch == STATIC_LEAVING_EPOCH:
        # Its session continues: if it is not back by then, its partitions go to others.
        gone = replace(member.current, epoch=STATIC_LEAVING_EPOCH, revoking={})
        record = CurrentMemberChange(group.group_id, request.member_id, gone)
        return Decision(reply=reply, records=[record])
    decision: Decision[HeartbeatReply] = Decision(reply=reply)
    remove(group, request.member_id, env, decision)
    return decision


def remove(group: ConsumerGroup, member_id: str, env: Env, decision: Decision[Any]) -> None:
    decision.records += without_member(group, member_id, env)
    decision.deadlines += _no_deadlines(group, member_id)


def is_leaving(request: HeartbeatRequest) -> bool:
    return request.epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH)


def must_go(group: ConsumerGroup, key: DeadlineKey) -> bool:
    """Whether an expired deadline ends this member."""
    member = group.members.get(key.member_id)
    if member is None:
        return False
    if key.kind is DeadlineKind.MEMBER_REVOKE:
        return _keeps_others_waiting(group, key.member_id, member.current)
    return True


def session_timeout_ms(group: ConsumerGroup, member: ConsumerMember, env: Env) -> int:
    if member.stored.classic is not None:
        return member.stored.classic.session_timeout_ms
    return own_session_timeout_ms(group, env)


def own_session_timeout_ms(group: ConsumerGroup, env: Env) -> int:
    """For members that speak the consumer protocol."""
    return _own_setting_ms(
        group, "consumer.session.timeout.ms", env, env.settings.consumer_session_timeout_ms
    )


def _own_setting_ms(group: ConsumerGroup, name: str, env: Env, default_ms: int) -> int:
    """A group may have its own settings; they were checked when they were set."""
    overrides = env.image.group_overrides.get(group.group_id)
    return default_ms if overrides is None else int(overrides.get(name, default_ms))


def deadlines_after_replay(group: ConsumerGroup, env: Env, decision: Decision[Any]) -> None:
    for member_id, member in group.members.items():
        keep_alive(group, member_id, session_timeout_ms(group, member, env), env, decision)
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            key = member_key(DeadlineKind.MEMBER_REVOKE, group.group_id, member_id)
            end_ms = env.uptime_ms + max(member.stored.rebalance_timeout_ms, 0)
            decision.deadlines.append(Deadline(key, end_ms))
