"""A share group: its members, what each is assigned, and the share partitions of the group.

State, and questions about it. All of it is in records. The epochs are those of a consumer
group: a change of members, subscriptions, topics or share partitions raises `epoch`;
`target_epoch` is the epoch of the current target; a member's epoch is the one that its
assignment has reached. Nothing has to be revoked before another member gets it, so a member
is at the target with its next heartbeat.
"""

from collections.abc import Iterable
from dataclasses import field
from typing import Final
from uuid import UUID

from millstream.coordinators.codecs.changes import (
    Assignment,
    ShareAssignment,
    SharedTopic,
    SharedTopics,
    StoredShareMember,
)
from millstream.coordinators.consumer.subscriptions import Subscription, Subscriptions
from millstream.coordinators.sizes import share_member_bytes, shared_topics_bytes
from millstream.lazy_dataclass import dataclass

ASSIGNOR: Final = "simple"


@dataclass(slots=True)
class ShareMember:
    stored: StoredShareMember
    current: ShareAssignment = field(default_factory=lambda: ShareAssignment(0, 0, {}))
    # What `stored` takes.
    size_bytes: int = 0
    subscription: Subscription | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class ShareGroup:
    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    target: dict[str, Assignment] = field(default_factory=dict)
    topics: SharedTopics = field(default_factory=SharedTopics)
    topics_bytes: int = 0
    # Not in records: the version of the topics that this group was last checked against, and
    # until when (uptime) the share coordinator may take to begin the partitions of a topic.
    topics_version_seen: int = -1
    initializing_until_ms: dict[UUID, int] = field(default_factory=dict)
    # What the members read.
    subscriptions: Subscriptions = field(default_factory=Subscriptions, repr=False, compare=False)
    # The last answers to what every heartbeat asks, and what they depended on: the topics of which
    # not all partitions are begun, and whether all that are begun are assigned.
    unbegun: list[str] = field(default_factory=list)
    unbegun_seen: tuple[int, int, int] | None = None
    assigned_seen: tuple[int, int, int, int] | None = None
    # Grows with `topics`.
    _topics_set: int = 0
    # Only in a replay: assignments whose members' records are still to come, as compaction keeps
    # the later record of a member that has changed its subscription.
    _early: dict[str, ShareAssignment] = field(default_factory=dict)

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def versions(self, topics_version: int) -> tuple[int, int, int]:
        """What the share partitions that this group needs depend on."""
        return (topics_version, self.subscriptions.version, self._topics_set)

    def set_member(self, member_id: str, stored: StoredShareMember) -> None:
        known = self.members.get(member_id)
        if known is None:
            early = self._early.pop(member_id, None)
            known = ShareMember(stored) if early is None else ShareMember(stored, early)
            self.members[member_id] = known
        else:
            known.stored = stored
        known.size_bytes = share_member_bytes(stored)
        if known.subscription is None or known.subscription.names != stored.topics:
            before, known.subscription = known.subscription, self.subscriptions.add(stored.topics)
            if before is not None:
                self.subscriptions.remove(before)

    def set_topics(self, topics: SharedTopics) -> None:
        self.topics = topics
        self._topics_set += 1
        self.topics_bytes = shared_topics_bytes(topics)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._early.pop(member_id, None)
        if member is not None and member.subscription is not None:
            self.subscriptions.remove(member.subscription)

    def set_current(self, member_id: str, current: ShareAssignment) -> None:
        known = self.members.get(member_id)
        if known is None:
            self._early[member_id] = current
        else:
            known.current = current

    def clear_current(self, member_id: str) -> None:
        self._early.pop(member_id, None)
        if member_id in self.members:
            self.members[member_id].current = ShareAssignment(0, 0, {})


def merged(
    topics: dict[UUID, SharedTopic], more: dict[UUID, SharedTopic]
) -> dict[UUID, SharedTopic]:
    result = dict(topics)
    for topic_id, topic in more.items():
        known = result.get(topic_id)
        numbers = {*topic.partitions, *(known.partitions if known is not None else ())}
        result[topic_id] = SharedTopic(topic.name, tuple(sorted(numbers)))
    return result


def without(
    topics: dict[UUID, SharedTopic], less: dict[UUID, SharedTopic]
) -> dict[UUID, SharedTopic]:
    result = {}
    for topic_id, topic in topics.items():
        gone: Iterable[int] = less[topic_id].partitions if topic_id in less else ()
        numbers = tuple(sorted({*topic.partitions} - {*gone}))
        if numbers:
            result[topic_id] = SharedTopic(topic.name, numbers)
    return result
