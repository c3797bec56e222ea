"""Share groups as administrators see them: describe, delete, and where they start. Pure.

What the share coordinator keeps is changed between two records of the group: the first says
what is about to happen, so that it can be repeated after a crash; the second, that it is done.
"""

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import Final
from uuid import UUID

from millstream.coordinators.codecs.changes import (
    Change,
    SharedTopic,
    SharedTopics,
    ShareGroupChange,
    SharePartitionsChange,
    ShareTargetChange,
    StoredConsumerGroup,
)
from millstream.coordinators.decision import Decision, Env
from millstream.coordinators.share.group import ShareGroup, merged
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."


@dataclass(slots=True)
class ShareWork:
    """What the share coordinator has to do, and the partitions that do not exist."""

    topics: dict[UUID, SharedTopic] = field(default_factory=dict)
    # By topic id and partition, for those that start elsewhere.
    starts: dict[tuple[UUID, int], int] = field(default_factory=dict)
    state_epoch: int = 0
    unknown: set[tuple[str, int]] = field(default_factory=set)
    unknown_topics: dict[str, str] = field(default_factory=dict)


def _require_empty(group: ShareGroup) -> None:
    if group.members:
        raise KafkaError(KafkaCode.NON_EMPTY_GROUP, f"Group {group.group_id} is not empty.")


def _named(topics: dict[UUID, SharedTopic]) -> dict[UUID, str]:
    return {topic_id: topic.name for topic_id, topic in topics.items()}


def begin_delete(group: ShareGroup, env: Env) -> Decision[ShareWork]:
    """Before a group is deleted: the share partitions that go with it."""
    _require_empty(group)
    topics = merged(group.topics.initialized, group.topics.initializing)
    for topic_id in group.topics.deleting:
        # An earlier attempt was interrupted; deleting twice does no harm.
        topic = env.image.topics_by_id.get(topic_id)
        if topic is not None:
            all_of = SharedTopic(topic.name, tuple(range(len(topic.partitions))))
            topics = merged(topics, {topic_id: all_of})
    value = SharedTopics(deleting=_named(topics))
    change = SharePartitionsChange(group.group_id, value)
    return Decision(reply=ShareWork(topics), records=[change])


def group_tombstones(group: ShareGroup) -> list[Change]:
    """The records that remove a group without members."""
    return [
        SharePartitionsChange(group.group_id, None),
        ShareTargetChange(group.group_id, None),
        ShareGroupChange(group.group_id, None),
    ]


def begin_alter(
    group: ShareGroup, wanted: Mapping[str, Mapping[int, int]], env: Env
) -> Decision[ShareWork]:
    """Before partitions start elsewhere; `wanted` has offsets by topic and partition. The group
    may be new. A higher epoch of the state fences leaders that know an older start."""
    _require_empty(group)
    work = ShareWork(state_epoch=group.epoch + 1)
    for name, offsets in wanted.items():
        topic = env.image.topics.get(name)
        count = 0 if topic is None else len(topic.partitions)
        work.unknown |= {(name, number) for number in offsets if not 0 <= number < count}
        found = tuple(sorted(number for number in offsets if 0 <= number < count))
        if topic is not None and found:
            work.topics[topic.topic_id] = SharedTopic(name, found)
            starts = {(topic.topic_id, number): offsets[number] for number in found}
            work.starts.update(starts)
    if not work.topics:
        return Decision(reply=work)
    records: list[Change] = [
        ShareGroupChange(group.group_id, StoredConsumerGroup(work.state_epoch, group.metadata_hash))
    ]
    initializing = merged(group.topics.initializing, work.topics)
    deleting = {k: name for k, name in group.topics.deleting.items() if k not in work.topics}
    topics = SharedTopics(initializing, group.topics.initialized, deleting)
    records.append(SharePartitionsChange(group.group_id, topics))
    return Decision(reply=work, records=records)


def begin_forget(group: ShareGroup, names: Collection[str], env: Env) -> Decision[ShareWork]:
    """Before a group forgets topics."""
    _require_empty(group)
    work = ShareWork()
    for name in names:
        topic = env.image.topics.get(name)
        if topic is None:
            work.unknown_topics[name] = UNKNOWN_TOPIC
            continue
        known = group.topics.initialized.get(topic.topic_id)
        if known is None and topic.topic_id in group.topics.deleting:
            known = SharedTopic(name, tuple(range(len(topic.partitions))))
        if known is None:
            work.unknown_topics[name] = "There is no offset information to delete."
        else:
            work.topics[topic.topic_id] = known
    if not work.topics:
        return Decision(reply=work)
    value = replace(
        group.topics,
        initialized=_without_topics(group.topics.initialized, work.topics),
        deleting={**group.topics.deleting, **_named(work.topics)},
    )
    return Decision(reply=work, records=[SharePartitionsChange(group.group_id, value)])


def forgotten(group: ShareGroup, topics: Collection[UUID]) -> Decision[KafkaCode]:
    """The share coordinator has forgotten these topics."""
    left = {k: name for k, name in group.topics.deleting.items() if k not in topics}
    value = replace(group.topics, deleting=left)
    record = SharePartitionsChange(group.group_id, value)
    return Decision(reply=KafkaCode.NONE, records=[record])


def without_topic(group: ShareGroup, topic_id: UUID) -> list[Change]:
    """The records for a topic that was deleted."""
    known = group.topics
    topics = SharedTopics(
        _without_topics(known.initializing, {topic_id}),
        _without_topics(known.initialized, {topic_id}),
        {k: name for k, name in known.deleting.items() if k != topic_id},
    )
    return [] if topics == known else [SharePartitionsChange(group.group_id, topics)]


def _without_topics(
    topics: dict[UUID, SharedTopic], gone: Collection[UUID]
) -> dict[UUID, SharedTopic]:
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in gone}
