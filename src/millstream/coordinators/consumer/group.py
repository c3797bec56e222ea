"""A consumer group (KIP-848): members, the target of each, and what each owns now.

State, and questions about it. All of it is in records, so a restart loses only the
sessions, which start over. The group moves through epochs: a change of members, of their
subscriptions or of the topics raises `epoch`; `target_epoch` is the epoch of the current
target; a member's epoch is the one that its assignment has reached.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import Final
from uuid import UUID

from millstream.coordinators.codecs.changes import (
    Assignment,
    CurrentAssignment,
    MatchedTopics,
    MemberState,
    StoredConsumerMember,
)
from millstream.coordinators.consumer.subscriptions import Subscription, Subscriptions
from millstream.coordinators.sizes import consumer_member_bytes, subscription_bytes
from millstream.lazy_dataclass import dataclass

# Member epochs with a special meaning.
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
# A static member leaves and will be back: it keeps its partitions.
STATIC_LEAVING_EPOCH: Final = -2

UNOWNED: Final = -1


@dataclass(slots=True)
class ConsumerMember:
    stored: StoredConsumerMember
    current: CurrentAssignment
    # What `stored` takes.
    size_bytes: int = 0
    subscription: Subscription | None = field(default=None, repr=False, compare=False)

    @property
    def speaks_classic(self) -> bool:
        return self.stored.classic is not None


def no_assignment(epoch: int = JOINING_EPOCH) -> CurrentAssignment:
    return CurrentAssignment(epoch, epoch, MemberState.STABLE, {}, {})


@dataclass(slots=True)
class ConsumerGroup:
    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    target: dict[str, Assignment] = field(default_factory=dict)
    # `set_pattern` also notes what each of them takes.
    patterns: dict[str, MatchedTopics] = field(default_factory=dict)
    pattern_bytes: dict[str, int] = field(default_factory=dict)
    # The names that members and patterns read, and what each pattern reads.
    subscriptions: Subscriptions = field(default_factory=Subscriptions, repr=False, compare=False)
    matched: dict[str, Subscription] = field(default_factory=dict)
    # The epoch in which a partition is owned, by topic id; a partition has at most one owner.
    owned_epochs: dict[UUID, dict[int, int]] = field(default_factory=dict)
    # Not in records: the version of the topics that this group was last checked against, the
    # versions of topics and permissions that each pattern was last matched by, and the members
    # that have not confirmed their last assignment yet.
    topics_version_seen: int = -1
    patterns_seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    unacknowledged: set[str] = field(default_factory=set)
    # Only in a replay: assignments whose members' records are still to come. A member that changed
    # its subscription wrote that record again, and compaction keeps the later one.
    _early: dict[str, CurrentAssignment] = field(default_factory=dict)

    @property
    def state_name(self) -> str:
        """Named as in ConsumerGroupDescribe."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        for member in self.members.values():
            if not self.is_reconciled(member):
                return "Reconciling"
        return "Stable"

    def is_reconciled(self, member: ConsumerMember) -> bool:
        current = member.current
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def owned_epoch(self, topic_id: UUID, partition: int) -> int:
        return self.owned_epochs.get(topic_id, {}).get(partition, UNOWNED)

    def is_subscribed_to(self, topic: str) -> bool:
        if topic not in self.subscriptions:
            return False
        if self.patterns.keys() <= {member.stored.pattern for member in self.members.values()}:
            return True
        # Only a pattern that nobody uses any more may have matched it.
        return any(topic in topics_of(self, m.stored) for m in self.members.values())

    @property
    def has_classic_members(self) -> bool:
        return any(member.speaks_classic for member in self.members.values())

    # -- changes, by `state` only -----------------------------------------------------

    def set_member(self, member_id: str, stored: StoredConsumerMember) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(stored, no_assignment())
            if member_id in self._early:
                self.set_current(member_id, self._early.pop(member_id))
        else:
            self._forget_instance(member_id, member.stored)
            member.stored = stored
        member.size_bytes = consumer_member_bytes(stored)
        if member.subscription is None or member.subscription.names != stored.topics:
            before, member.subscription = member.subscription, self.subscriptions.add(stored.topics)
            if before is not None:
                self.subscriptions.remove(before)
        if stored.instance_id is not None:
            self.static_members[stored.instance_id] = member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._early.pop(member_id, None)
        if member is None:
            return
        if member.subscription is not None:
            self.subscriptions.remove(member.subscription)
        self._release(member.current)
        self.unacknowledged.discard(member_id)
        self._forget_instance(member_id, member.stored)

    def _forget_instance(self, member_id: str, stored: StoredConsumerMember) -> None:
        instance_id = stored.instance_id
        # The instance may already be back under another id.
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def set_current(self, member_id: str, current: CurrentAssignment) -> None:
        member = self.members.get(member_id)
        if member is None:
            self._early[member_id] = current
            return
        self._release(member.current)
        member.current = current
        for assignment in (current.assigned, current.revoking):
            for topic_id, partitions in assignment.items():
                epochs = self.owned_epochs.setdefault(topic_id, {})
                for partition in partitions:
                    epochs[partition] = current.epoch

    def clear_current(self, member_id: str) -> None:
        self._early.pop(member_id, None)
        if member_id in self.members:
            self.set_current(member_id, no_assignment())

    def set_pattern(self, pattern: str, matched: MatchedTopics) -> None:
        before = self.matched.get(pattern)
        self.matched[pattern] = self.subscriptions.add(matched.topics)
        if before is not None:
            self.subscriptions.remove(before)
        self.patterns[pattern] = matched
        self.pattern_bytes[pattern] = subscription_bytes(matched.topics, pattern)

    def remove_pattern(self, pattern: str) -> None:
        before = self.matched.pop(pattern, None)
        if before is not None:
            self.subscriptions.remove(before)
        self.patterns.pop(pattern, None)
        self.pattern_bytes.pop(pattern, None)

    def _release(self, current: CurrentAssignment) -> None:
        for assignment in (current.assigned, current.revoking):
            for topic_id, partitions in assignment.items():
                epochs = self.owned_epochs.get(topic_id)
                if epochs is None:
                    continue
                for partition in partitions:
                    # In a replay, another member may have taken it over before this one's record
                    # follows; the newer epoch keeps it.
                    if epochs.get(partition) == current.epoch:
                        del epochs[partition]
                if not epochs:
                    del self.owned_epochs[topic_id]


def topics_of(group: ConsumerGroup, stored: StoredConsumerMember) -> set[str]:
    """The topics that a member reads: those it names and those that match its pattern."""
    topics = set(stored.topics)
    if stored.pattern:
        matched = group.patterns.get(stored.pattern)
        if matched is not None:
            topics.update(matched.topics)
    return topics


def covers(assignment: Assignment, other: Assignment) -> bool:
    """Whether all of `other` is in `assignment`."""
    return all(
        set(partitions) <= set(assignment.get(topic_id, ()))
        for topic_id, partitions in other.items()
    )


def sorted_assignment(partitions: Mapping[UUID, Iterable[int]]) -> Assignment:
    """The canonical form of an assignment: sorted, and without topics that have no partitions."""
    cleaned = {topic_id: tuple(sorted(found)) for topic_id, found in partitions.items()}
    # By number: that is how ids compare, but in Python, which takes ten times as long.
    ordered = sorted(cleaned, key=attrgetter("int"))
    return {topic_id: cleaned[topic_id] for topic_id in ordered if cleaned[topic_id]}
