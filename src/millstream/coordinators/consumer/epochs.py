"""A step of a consumer group: one member's update, and all that follows from it. Pure.

    update of a member -> its record -> another epoch of the group, if subscriptions or
    topics changed -> a new target for all members -> the next step of this member

All records of a step are one batch: a crash leaves all of them or none.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final
from uuid import UUID

from millstream.coordinators.codecs.changes import (
    Assignment,
    Change,
    ConsumerGroupChange,
    CurrentAssignment,
    CurrentMemberChange,
    MatchedTopics,
    MemberChange,
    PatternChange,
    StoredConsumerGroup,
    StoredConsumerMember,
    StoredTarget,
    TargetChange,
    TargetMemberChange,
)
from millstream.coordinators.consumer.assignors import ASSIGNORS, AssignedMember
from millstream.coordinators.consumer.group import (
    JOINING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    covers,
)
from millstream.coordinators.consumer.pattern import PatternMatch
from millstream.coordinators.consumer.reconcile import reconcile
from millstream.coordinators.consumer.subscriptions import Difference, topic_ids
from millstream.coordinators.decision import Decision, Env
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# That the different subscriptions of a group have together: each is compared with the others when
# a target is computed, while nobody else is served.
_DIFFERENT_NAMES_MAX: Final = 100_000


@dataclass(slots=True)
class News:
    """A member after its update; `replaced_id` is its previous id, if it was another."""

    member_id: str
    stored: StoredConsumerMember
    current: CurrentAssignment
    is_new: bool = False
    replaced_id: str | None = None
    # What the member reports to own; None: as it last reported.
    reported: Assignment | None = None
    # The version of what it may describe, and what its pattern matches, if that was asked for.
    visible_version: int = 0
    matched: PatternMatch | None = None


@dataclass(slots=True)
class _Draft:
    """The group after the step: members and patterns, before their records are applied."""

    members: dict[str, StoredConsumerMember]
    patterns: dict[str, MatchedTopics]
    # Members that come, change or go.
    changed: set[str] = field(default_factory=set)
    records: list[Change] = field(default_factory=list)

    def difference(self, group: ConsumerGroup) -> Difference:
        less = [group.members[each].stored.topics for each in self.changed & group.members.keys()]
        more = [self.members[each].topics for each in self.changed & self.members.keys()]
        for pattern in group.patterns.keys() | self.patterns.keys():
            before, after = group.patterns.get(pattern), self.patterns.get(pattern)
            if before is not after:
                less += [] if before is None else [before.topics]
                more += [] if after is None else [after.topics]
        return group.subscriptions.difference(less, more)


def advance(
    group: ConsumerGroup, news: News, env: Env, decision: Decision[Any]
) -> CurrentAssignment:
    """Add the step's records to the decision; return what the member owns after it."""
    known = group.members.get(news.member_id)
    target, target_epoch = group.target, group.target_epoch
    if known is None or not _is_settled(group, known, news, env):
        target, target_epoch = _new_epoch(group, known, news, env, decision)
    has = news.current.assigned if news.current.epoch != JOINING_EPOCH else {}
    if news.reported is not None:
        if covers(news.reported, has):
            group.unacknowledged.discard(news.member_id)
        elif news.stored.classic is None:
            # After a restart, this says which members have still to apply theirs.
            group.unacknowledged.add(news.member_id)
    after = reconcile(
        news.current,
        target=target.get(news.member_id, {}),
        target_epoch=target_epoch,
        owned_epoch=group.owned_epoch,
        reported=news.reported,
        is_acknowledged=news.member_id not in group.unacknowledged,
    )
    # Classic members fetch every assignment themselves.
    if news.stored.classic is None and not covers(has, after.assigned):
        group.unacknowledged.add(news.member_id)
    if known is None or after != known.current:
        decision.records.append(CurrentMemberChange(group.group_id, news.member_id, after))
    return after


def _is_settled(group: ConsumerGroup, known: ConsumerMember, news: News, env: Env) -> bool:
    """The most common heartbeat: nothing has changed."""
    return (
        group.epoch == group.target_epoch
        and group.topics_version_seen == env.topics_version
        and known.stored == news.stored
        and (news.stored.pattern is None or _is_matched(group, news, env))
    )


def _is_matched(group: ConsumerGroup, news: News, env: Env) -> bool:
    seen = group.patterns_seen.get(news.stored.pattern or "")
    return seen == (env.topics_version, news.visible_version)


def _new_epoch(
    group: ConsumerGroup,
    known: ConsumerMember | None,
    news: News,
    env: Env,
    decision: Decision[Any],
) -> tuple[dict[str, Assignment], int]:
    """Apply the update; return the target of all members and its epoch."""
    draft = _draft(group, without=news.replaced_id)
    draft.members[news.member_id] = news.stored
    draft.changed.add(news.member_id)
    if known is None or known.stored != news.stored:
        draft.records.append(MemberChange(group.group_id, news.member_id, news.stored))
    # An instance that is back under a new id reads the same topics: nothing changes for others.
    before = known or group.members.get(news.replaced_id or "")
    is_changed = (
        before is None
        or before.stored.topics != news.stored.topics
        or before.stored.pattern != news.stored.pattern
    )
    if is_changed:
        _check_room(group, news)
    is_matched_anew = _match_pattern(group, draft, news, env)
    epoch = _next_epoch(group, draft, env, is_changed=is_changed, is_matched_anew=is_matched_anew)
    target = group.target
    if epoch > group.target_epoch:
        target = _new_target(group, draft, news, env, epoch)
    elif news.replaced_id is not None:
        own = target.get(news.replaced_id, {})
        target = {**target, news.member_id: own}
        draft.records.append(TargetMemberChange(group.group_id, news.member_id, own))
    decision.records += draft.records
    return target, max(epoch, group.target_epoch)


def _check_room(group: ConsumerGroup, news: News) -> None:
    """Raises KafkaError. Members that read the same count once, and what the member's own pattern
    matches does not count: nobody should have to name topics instead."""
    names, pattern = news.stored.topics, news.stored.pattern
    if group.subscriptions.is_known(names) and (pattern is None or pattern in group.patterns):
        return
    different = group.subscriptions.different_names
    for member_id in {news.member_id, news.replaced_id}:
        before = group.members.get(member_id or "")
        if before is not None and before.subscription is not None:
            is_shared = before.subscription.readers > 1 or before.subscription.names == names
            different -= 0 if is_shared else len(before.subscription.names)
    if not group.subscriptions.is_known(names):
        different += len(names)
    if different > _DIFFERENT_NAMES_MAX:
        raise KafkaError(
            KafkaCode.GROUP_MAX_SIZE_REACHED,
            f"The different subscriptions of the group would have more than "
            f"{_DIFFERENT_NAMES_MAX:,} topics together. Let members read the same topics, or "
            "divide the topics among several groups.",
        )


def without_member(group: ConsumerGroup, member_id: str, env: Env) -> list[Change]:
    """The records of a member's end: the group moves to another epoch without it."""
    draft = _draft(group, without=member_id)
    draft.records += member_tombstones(group.group_id, member_id)
    _next_epoch(group, draft, env, is_changed=True, is_matched_anew=False)
    return draft.records


def member_tombstones(group_id: str, member_id: str) -> list[Change]:
    return [
        CurrentMemberChange(group_id, member_id, None),
        TargetMemberChange(group_id, member_id, None),
        MemberChange(group_id, member_id, None),
    ]


def _draft(group: ConsumerGroup, *, without: str | None) -> _Draft:
    members = {each: m.stored for each, m in group.members.items() if each != without}
    return _Draft(members, dict(group.patterns), set() if without is None else {without})


# -- the group's epoch ----------------------------------------------------------------


def _next_epoch(
    group: ConsumerGroup, draft: _Draft, env: Env, *, is_changed: bool, is_matched_anew: bool
) -> int:
    """The group's epoch after this step; it grows with changes of subscriptions or topics."""
    is_current = group.topics_version_seen == env.topics_version
    if is_current and not is_changed and not is_matched_anew:
        return group.epoch
    _drop_unused_patterns(group, draft)
    difference = draft.difference(group)
    metadata_hash = group.subscriptions.topics_hash(difference, env.image, env.topics_version)
    if not is_changed and metadata_hash == group.metadata_hash:
        # Not before: if the record below cannot be written, the next heartbeat must look again.
        group.topics_version_seen = env.topics_version
        return group.epoch
    stored = StoredConsumerGroup(group.epoch + 1, metadata_hash)
    draft.records.append(ConsumerGroupChange(group.group_id, stored))
    return stored.epoch


def _drop_unused_patterns(group: ConsumerGroup, draft: _Draft) -> None:
    used = {stored.pattern for stored in draft.members.values()}
    for pattern in sorted(draft.patterns.keys() - used):
        del draft.patterns[pattern]
        group.patterns_seen.pop(pattern, None)
        draft.records.append(PatternChange(group.group_id, pattern, None))


def _match_pattern(group: ConsumerGroup, draft: _Draft, news: News, env: Env) -> bool:
    """Take in what the member's own pattern matches, if it is new, or topics or permissions have
    changed. What is missing (`unmatched_pattern`) comes with the next heartbeat.

    As in Kafka, members with the same pattern share the result: it has the topics that the
    member who asked first may describe.
    """
    pattern, match = news.stored.pattern, news.matched
    if match is None or match.pattern != pattern or _is_matched(group, news, env):
        return False
    known = draft.patterns.get(pattern)
    if known is not None and known.topics == match.topics:
        # Not before: see `_next_epoch`.
        group.patterns_seen[pattern] = (match.topics_version, match.visible_version)
        return False
    matched = MatchedTopics(match.topics, match.topics_version, env.now_ms)
    draft.patterns[pattern] = matched
    draft.records.append(PatternChange(group.group_id, pattern, matched))
    return True


# -- the target -----------------------------------------------------------------------


def _new_target(
    group: ConsumerGroup, draft: _Draft, news: News, env: Env, epoch: int
) -> dict[str, Assignment]:
    """Compute the whole assignment again; only the differences are written."""
    topics = env.image.topics
    counts = {
        topics[name].topic_id: len(topics[name].partitions)
        for name in group.subscriptions.existing(draft.difference(group), env.image)
    }
    read = _TopicIds(group, draft, env)
    previous = dict(group.target)
    if news.replaced_id is not None:
        previous[news.member_id] = previous.pop(news.replaced_id, {})
    members = [
        AssignedMember(
            member_id,
            stored.instance_id,
            read.of(member_id, stored),
            previous.get(member_id, {}),
        )
        for member_id, stored in draft.members.items()
    ]
    name = chosen_assignor(draft.members, env.settings.assignors)
    target = ASSIGNORS[name](members, counts)
    for member_id in sorted(target):
        if group.target.get(member_id) != target[member_id]:
            change = TargetMemberChange(group.group_id, member_id, target[member_id])
            draft.records.append(change)
    draft.records.append(TargetChange(group.group_id, StoredTarget(epoch, env.now_ms)))
    return target


class _TopicIds:
    """The topics that each member reads after the step. Most members read the same."""

    def __init__(self, group: ConsumerGroup, draft: _Draft, env: Env) -> None:
        self._group = group
        self._draft = draft
        self._env = env
        self._matched: dict[str, frozenset[UUID]] = {}
        # Of names and pattern.
        self._both: dict[tuple[frozenset[UUID], str], frozenset[UUID]] = {}

    def of(self, member_id: str, stored: StoredConsumerMember) -> frozenset[UUID]:
        known = self._group.members.get(member_id)
        if known is not None and known.subscription is not None and known.stored is stored:
            named = known.subscription.topic_ids(self._env.image, self._env.topics_version)
        else:
            named = topic_ids(stored.topics, self._env.image)
        if not stored.pattern:
            return named
        matched = self._matched_by(stored.pattern)
        if not named:
            return matched
        both = (named, stored.pattern)
        if both not in self._both:
            self._both[both] = named | matched
        return self._both[both]

    def _matched_by(self, pattern: str) -> frozenset[UUID]:
        if pattern not in self._matched:
            after = self._draft.patterns.get(pattern)
            if after is not None and after is self._group.patterns.get(pattern):
                known = self._group.matched[pattern]
                found = known.topic_ids(self._env.image, self._env.topics_version)
            else:
                found = topic_ids(() if after is None else after.topics, self._env.image)
            self._matched[pattern] = found
        return self._matched[pattern]


def chosen_assignor(members: Mapping[str, StoredConsumerMember], offered: tuple[str, ...]) -> str:
    """The assignor that most members request; without a request, the node's first."""
    votes: dict[str, int] = {}
    for stored in members.values():
        if stored.assignor is not None and stored.assignor in ASSIGNORS:
            votes[stored.assignor] = votes.get(stored.assignor, 0) + 1
    if votes:
        return max(votes, key=lambda name: votes[name])
    return next((name for name in offered if name in ASSIGNORS), "uniform")
