"""What ShareGroupHeartbeat does: members join, stay, change their topics and leave. Pure.

A partition is assigned only once the share coordinator has begun it for the group: until
then nobody could store what becomes of its records. So the reply also says which partitions
to begin; `initialized` or `not_initialized` follows.
"""

from dataclasses import field, replace
from typing import Any, Final
from uuid import UUID

from millstream.cluster.state import TopicState
from millstream.coordinators.codecs.changes import (
    Assignment,
    Change,
    ShareAssignment,
    ShareCurrentMemberChange,
    SharedTopic,
    SharedTopics,
    ShareGroupChange,
    ShareMemberChange,
    SharePartitionsChange,
    ShareTargetChange,
    ShareTargetMemberChange,
    StoredConsumerGroup,
    StoredShareMember,
    StoredTarget,
)
from millstream.coordinators.consumer.group import JOINING_EPOCH, LEAVING_EPOCH
from millstream.coordinators.consumer.subscriptions import Difference, topic_ids
from millstream.coordinators.decision import Deadline, DeadlineKey, DeadlineKind, Decision, Env
from millstream.coordinators.share.assignor import SharingMember, assign_simple
from millstream.coordinators.share.group import ShareGroup, ShareMember, merged, without
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# While a group settles, members report often, so that they learn of new partitions quickly.
_SHORTEST_INTERVAL_MS: Final = 50
# That a member may subscribe to. Each is sorted, hashed and encoded while nobody else is served.
_TOPIC_NAMES_MAX: Final = 5_000
# That all members of a group name together if they read different topics: each of them gets a
# partition of each of its topics, and all of that is computed while nobody else is served. Members
# that all read the same divide the partitions.
_GROUP_NAMES_MAX: Final = 50_000


@dataclass(slots=True)
class ShareHeartbeatRequest:
    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    # None: unchanged since the member last sent it.
    topics: tuple[str, ...] | None = None


@dataclass(slots=True)
class ShareHeartbeatReply:
    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Assignment | None = None
    # What the share coordinator has to begin, with the group's epoch as the state's.
    to_initialize: dict[UUID, SharedTopic] = field(default_factory=dict)
    group_epoch: int = 0


def check(request: ShareHeartbeatRequest, env: Env) -> None:
    if not request.member_id:
        raise _refuse("MemberId can't be empty.")
    if not request.group_id:
        raise _refuse("GroupId can't be empty.")
    if request.rack_id == "":
        raise _refuse("RackId can't be empty.")
    if request.epoch == JOINING_EPOCH:
        if not request.topics:
            raise _refuse("SubscribedTopicNames must be set in first request.")
    elif request.epoch < LEAVING_EPOCH:
        raise _refuse("MemberEpoch is invalid.")
    if len(request.topics or ()) > _TOPIC_NAMES_MAX:
        raise _refuse(
            f"SubscribedTopicNames has {len(request.topics or ()):,} names, of which there may be "
            f"{_TOPIC_NAMES_MAX:,}. Divide the topics among several members or groups."
        )
    if sum(len(name) for name in request.topics or ()) > env.settings.batch_bytes_max // 2:
        raise _refuse("SubscribedTopicNames is too large.")


def _refuse(text: str) -> KafkaError:
    return KafkaError(KafkaCode.INVALID_REQUEST, text)


def heartbeat(
    group: ShareGroup, request: ShareHeartbeatRequest, env: Env
) -> Decision[ShareHeartbeatReply]:
    """A member joins, stays alive or changes its topics. `group` may be new and empty."""
    known = _known_member(group, request, env)
    decision: Decision[ShareHeartbeatReply] = Decision()
    stored = _stored(request, known)
    _check_room(group, known, stored)
    members = {member_id: member.stored for member_id, member in group.members.items()}
    members[request.member_id] = stored
    if known is None or known.stored != stored:
        change = ShareMemberChange(group.group_id, request.member_id, stored)
        decision.records.append(change)
    is_changed = known is None or known.stored.topics != stored.topics
    difference = _difference(group, known, stored, is_changed=is_changed)
    epoch = _next_epoch(group, difference, env, decision, is_changed=is_changed)
    target, target_epoch = group.target, group.target_epoch
    if epoch > target_epoch:
        target, target_epoch = _new_target(group, members, env, epoch, decision), epoch
    before = known.current if known is not None else ShareAssignment(JOINING_EPOCH, 0, {})
    wanted = _topic_ids(known, stored, env)
    after = _next_assignment(before, target.get(request.member_id, {}), target_epoch, wanted)
    if known is None or after != before:
        current = ShareCurrentMemberChange(group.group_id, request.member_id, after)
        decision.records.append(current)
    to_initialize = _begin_partitions(group, difference, env, decision)
    _keep_alive(group, request.member_id, env, decision)
    is_told = request.epoch == JOINING_EPOCH or request.topics is not None
    decision.reply = ShareHeartbeatReply(
        member_id=request.member_id,
        epoch=after.epoch,
        interval_ms=_interval_ms(group, env, has_changed=bool(decision.records)),
        assignment=after.assigned if is_told or after.assigned != before.assigned else None,
        to_initialize=to_initialize,
        group_epoch=epoch,
    )
    return decision


def _known_member(
    group: ShareGroup, request: ShareHeartbeatRequest, env: Env
) -> ShareMember | None:
    """None for a new one. Raises KafkaError."""
    known = group.members.get(request.member_id)
    if known is None:
        if request.epoch != JOINING_EPOCH:
            text = f"Member {request.member_id} is not a member of group {group.group_id}."
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID, text)
        if len(group.members) >= env.settings.share_members_max:
            raise KafkaError(
                KafkaCode.GROUP_MAX_SIZE_REACHED,
                f"The group has its maximum of {env.settings.share_members_max} members.",
            )
        return None
    current = known.current
    # The response with its new epoch may have been lost.
    if request.epoch not in (JOINING_EPOCH, current.epoch, current.previous_epoch):
        raise KafkaError(
            KafkaCode.FENCED_MEMBER_EPOCH,
            f"The member has epoch {request.epoch}, the coordinator knows {current.epoch}. "
            "It must give up its partitions and join again.",
        )
    return known


def _check_room(group: ShareGroup, known: ShareMember | None, stored: StoredShareMember) -> None:
    """Raises KafkaError."""
    before = None if known is None else known.subscription
    names = group.subscriptions
    grown = len(stored.topics) - (0 if before is None else len(before.names))
    different = names.different + (not names.is_known(stored.topics))
    different -= before is not None and before.readers == 1 and before.names != stored.topics
    # Members that are there may read less, unless all of them have read the same until now.
    is_more = grown > 0 or names.different == 1
    if different > 1 and is_more and names.all_names + grown > _GROUP_NAMES_MAX:
        raise KafkaError(
            KafkaCode.GROUP_MAX_SIZE_REACHED,
            f"The members of the group would read different topics, and subscribe to more than "
            f"{_GROUP_NAMES_MAX:,} names together. Let all members read the same topics, or "
            "divide the topics among several groups.",
        )


def _difference(
    group: ShareGroup, known: ShareMember | None, stored: StoredShareMember, *, is_changed: bool
) -> Difference:
    if not is_changed:
        return Difference()
    less = [] if known is None else [known.stored.topics]
    return group.subscriptions.difference(less, [stored.topics])


def _stored(request: ShareHeartbeatRequest, known: ShareMember | None) -> StoredShareMember:
    base = known.stored if known is not None else StoredShareMember(None, "", "", ())
    return StoredShareMember(
        rack_id=request.rack_id or base.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=base.topics if request.topics is None else tuple(sorted(set(request.topics))),
    )


# -- epochs and assignments -------------------------------------------------------------


def _next_epoch(
    group: ShareGroup,
    difference: Difference,
    env: Env,
    decision: Decision[Any],
    *,
    is_changed: bool,
) -> int:
    """The group's epoch after this step."""
    if not is_changed and group.epoch == group.target_epoch:
        is_changed = _is_assignment_due(group, env)
    if not is_changed and group.topics_version_seen == env.topics_version:
        return group.epoch
    metadata_hash = group.subscriptions.topics_hash(difference, env.image, env.topics_version)
    if not is_changed and metadata_hash == group.metadata_hash:
        # Not before: if the record below cannot be written, the next heartbeat must look again.
        group.topics_version_seen = env.topics_version
        return group.epoch
    stored_group = StoredConsumerGroup(group.epoch + 1, metadata_hash)
    decision.records.append(ShareGroupChange(group.group_id, stored_group))
    return stored_group.epoch


def _is_assignment_due(group: ShareGroup, env: Env) -> bool:
    """Has the share coordinator begun partitions that nobody is assigned yet?"""
    versions = (*group.versions(env.topics_version), group.target_epoch)
    if group.assigned_seen == versions:
        return False
    assigned: dict[UUID, set[int]] = {}
    for assignment in group.target.values():
        for topic_id, numbers in assignment.items():
            assigned.setdefault(topic_id, set()).update(numbers)
    is_due = any(
        topic.name in group.subscriptions and assigned.get(topic_id, set()) != set(topic.partitions)
        for topic_id, topic in group.topics.initialized.items()
        # A topic that was deleted in the meantime is never assigned.
        if topic_id in env.image.topics_by_id
    )
    if not is_due:
        group.assigned_seen = versions
    return is_due


def _new_target(
    group: ShareGroup,
    members: dict[str, StoredShareMember],
    env: Env,
    epoch: int,
    decision: Decision[Any],
) -> dict[str, Assignment]:
    partitions = {
        topic_id: topic.partitions
        for topic_id, topic in group.topics.initialized.items()
        if topic_id in env.image.topics_by_id
    }
    target = assign_simple(
        [
            SharingMember(
                member_id,
                _topic_ids(group.members.get(member_id), stored, env),
                group.target.get(member_id, {}),
            )
            for member_id, stored in members.items()
        ],
        partitions,
    )
    for member_id in sorted(target):
        if group.target.get(member_id) != target[member_id]:
            change = ShareTargetMemberChange(group.group_id, member_id, target[member_id])
            decision.records.append(change)
    decision.records.append(ShareTargetChange(group.group_id, StoredTarget(epoch, env.now_ms)))
    return target


def _topic_ids(known: ShareMember | None, stored: StoredShareMember, env: Env) -> frozenset[UUID]:
    """The topics that a member reads after the step, in which its subscription may change."""
    if known is None or known.subscription is None or known.stored.topics != stored.topics:
        return topic_ids(stored.topics, env.image)
    return known.subscription.topic_ids(env.image, env.topics_version)


def _next_assignment(
    before: ShareAssignment,
    target: Assignment,
    target_epoch: int,
    wanted: frozenset[UUID],
) -> ShareAssignment:
    assigned = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in wanted}
    if before.epoch == target_epoch:
        return replace(before, assigned=assigned)
    return ShareAssignment(target_epoch, before.epoch, assigned)


def _interval_ms(group: ShareGroup, env: Env, *, has_changed: bool) -> int:
    """Soon after a change, because others may follow; then more and more slowly."""
    configured_ms = own_setting_ms(
        group, "share.heartbeat.interval.ms", env, env.settings.share_heartbeat_interval_ms
    )
    quiet_ms = 0 if has_changed else max(env.now_ms - group.target_timestamp_ms, 0)
    return min(max(quiet_ms // 2, _SHORTEST_INTERVAL_MS), configured_ms)


def own_setting_ms(group: ShareGroup, name: str, env: Env, default_ms: int) -> int:
    """A group may have its own settings; they were checked when they were set."""
    overrides = env.image.group_overrides.get(group.group_id)
    return default_ms if overrides is None else int(overrides.get(name, default_ms))


# -- share partitions -------------------------------------------------------------------


def _begin_partitions(
    group: ShareGroup, difference: Difference, env: Env, decision: Decision[Any]
) -> dict[UUID, SharedTopic]:
    """Partitions that members read and that the share coordinator does not have yet."""
    found: dict[UUID, SharedTopic] = {}
    for name in sorted(_unbegun_topics(group, difference, env)):
        topic = env.image.topics[name]
        if group.initializing_until_ms.get(topic.topic_id, 0) <= env.uptime_ms:
            found[topic.topic_id] = SharedTopic(name, tuple(sorted(_unbegun(group, topic))))
    if found:
        until_ms = env.uptime_ms + env.settings.share_initialize_retry_ms
        group.initializing_until_ms.update(dict.fromkeys(found, until_ms))
        topics = SharedTopics(
            merged(group.topics.initializing, found),
            group.topics.initialized,
            {one: name for one, name in group.topics.deleting.items() if one not in found},
        )
        if topics != group.topics:
            decision.records.append(SharePartitionsChange(group.group_id, topics))
    return found


def _unbegun_topics(group: ShareGroup, difference: Difference, env: Env) -> list[str]:
    """Topics that the group reads after the step and has not begun. Mostly there are none."""
    topics = env.image.topics
    versions = group.versions(env.topics_version)
    if group.unbegun_seen != versions:
        names = group.subscriptions.existing(Difference(), env.image)
        group.unbegun = [name for name in names if _unbegun(group, topics[name])]
        group.unbegun_seen = versions
    come = [name for name in difference.come if name in topics and _unbegun(group, topics[name])]
    return [name for name in group.unbegun if name not in difference.gone] + come


def _unbegun(group: ShareGroup, topic: TopicState) -> set[int]:
    known = group.topics.initialized.get(topic.topic_id)
    return set(range(len(topic.partitions))) - {*(known.partitions if known else ())}


def initialized(
    group: ShareGroup, topics: dict[UUID, SharedTopic], env: Env
) -> Decision[KafkaCode]:
    """The share coordinator has begun these partitions."""
    for topic_id in topics:
        group.initializing_until_ms.pop(topic_id, None)
    value = SharedTopics(
        without(group.topics.initializing, topics),
        merged(group.topics.initialized, topics),
        group.topics.deleting,
    )
    change = SharePartitionsChange(group.group_id, value)
    return Decision(reply=KafkaCode.NONE, records=[change])


def not_initialized(group: ShareGroup, topics: dict[UUID, SharedTopic]) -> Decision[KafkaCode]:
    """The share coordinator could not begin them: the next heartbeat tries again."""
    for topic_id in topics:
        group.initializing_until_ms.pop(topic_id, None)
    value = replace(group.topics, initializing=without(group.topics.initializing, topics))
    change = SharePartitionsChange(group.group_id, value)
    return Decision(reply=KafkaCode.NONE, records=[change])


# -- members that leave -----------------------------------------------------------------


def leave(
    group: ShareGroup, request: ShareHeartbeatRequest, env: Env
) -> Decision[ShareHeartbeatReply]:
    if request.member_id not in group.members:
        text = f"Member {request.member_id} is not a member of group {group.group_id}."
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID, text)
    decision: Decision[ShareHeartbeatReply] = Decision(
        reply=ShareHeartbeatReply(request.member_id, request.epoch)
    )
    remove(group, request.member_id, env, decision)
    return decision


def remove(group: ShareGroup, member_id: str, env: Env, decision: Decision[Any]) -> None:
    difference = group.subscriptions.difference([group.members[member_id].stored.topics], [])
    metadata_hash = group.subscriptions.topics_hash(difference, env.image, env.topics_version)
    records: list[Change] = [
        ShareCurrentMemberChange(group.group_id, member_id, None),
        ShareTargetMemberChange(group.group_id, member_id, None),
        ShareMemberChange(group.group_id, member_id, None),
        ShareGroupChange(group.group_id, StoredConsumerGroup(group.epoch + 1, metadata_hash)),
    ]
    decision.records += records
    decision.deadlines.append(Deadline(_session_key(group, member_id), None))


def _session_key(group: ShareGroup, member_id: str) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.MEMBER_SESSION, group.group_id, member_id)


def _keep_alive(group: ShareGroup, member_id: str, env: Env, decision: Decision[Any]) -> None:
    session_ms = own_setting_ms(
        group, "share.session.timeout.ms", env, env.settings.share_session_timeout_ms
    )
    key = _session_key(group, member_id)
    decision.deadlines.append(Deadline(key, env.uptime_ms + session_ms))


def deadlines_after_replay(group: ShareGroup, env: Env, decision: Decision[Any]) -> None:
    for member_id in group.members:
        _keep_alive(group, member_id, env, decision)
