"""Retention by consumption: records that all the named groups have committed may go.

Ours and not Kafka's: the topic option `millstream.retention.consumed.groups`. It never
deletes past the lowest commit. A group without a commit for a partition, or one whose
commits are unavailable right now, keeps all records of that partition.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from millstream.broker.node.state import NodeState
from millstream.cluster.state import TopicState
from millstream.config import topic_config
from millstream.errors import KafkaError
from millstream.storage.retention import consumed_offset

log = logging.getLogger(__name__)

_OPTION: Final = "millstream.retention.consumed.groups"


class Commits(Protocol):
    async def committed(
        self, group: str, topic: TopicState, indexes: Sequence[int]
    ) -> dict[int, int]:
        """What a group has committed, by partition. Raises KafkaError while it is unknown."""
        ...


# None while this node has no groups.
FindCommits = Callable[[], Commits | None]


async def delete_consumed(node: NodeState, find_commits: FindCommits) -> bool:
    """Move log starts up to the lowest commit of all groups; return whether any moved."""
    has_moved = False
    for topic in list(node.image.topics.values()):
        # A default would apply to the whole node; this option has none there.
        commits = find_commits() if _OPTION in topic.overrides else None
        if commits is None:
            continue
        groups = topic_config(node.config, topic.overrides).list(_OPTION)
        if groups:
            has_moved |= await _delete_consumed_of(node, topic, groups, commits)
    return has_moved


async def _delete_consumed_of(
    node: NodeState, topic: TopicState, groups: tuple[str, ...], commits: Commits
) -> bool:
    indexes = list(node.partitions.of_topic(topic.name))
    try:
        offsets = [await commits.committed(group, topic, indexes) for group in groups]
    except KafkaError as error:
        log.info("consumed records of %s stay for now: %s", topic.name, error)
        return False
    has_moved = False
    for index, partition in node.partitions.of_topic(topic.name).items():
        partition_log = partition.log
        offset = consumed_offset((each.get(index) for each in offsets), partition.high_watermark)
        if offset is None or partition.offline_reason is not None:
            continue
        if not partition_log.config.is_deleted or partition.topic_id != topic.topic_id:
            continue
        if offset > partition_log.log_start_offset:
            partition_log.delete_records_before(offset)
            has_moved = True
    return has_moved
