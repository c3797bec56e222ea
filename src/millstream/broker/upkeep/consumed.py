"""Retention by consumption: what all the named groups have committed may go.

Ours and not Kafka's: the topic option `millstream.retention.consumed.groups`. Never past
the lowest commit; a group without a commit on a partition keeps that partition whole, and
so does a group that cannot be asked right now.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from millstream.cluster.state import TopicState
from millstream.config import topic_config
from millstream.errors import KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.storage.retention import consumed_offset

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

log = logging.getLogger(__name__)

_OPTION: Final = "millstream.retention.consumed.groups"


async def delete_consumed(broker: "Broker") -> bool:
    """Move log starts up to where all groups are; whether any moved."""
    has_moved = False
    for topic in list(broker.image.topics.values()):
        # A set default would be the node's; this option has none there.
        if _OPTION not in topic.overrides or not broker.has_groups:
            continue
        if not broker.coordinators.has_topic:
            continue
        groups = topic_config(broker.config, topic.overrides).list(_OPTION)
        if groups:
            has_moved |= await _delete_consumed_of(broker, topic, groups)
    return has_moved


async def _delete_consumed_of(broker: "Broker", topic: TopicState, groups: tuple[str, ...]) -> bool:
    try:
        commits = [await _commits(broker, topic, group) for group in groups]
    except KafkaError as error:
        log.info("consumed records of %s stay for now: %s", topic.name, error)
        return False
    has_moved = False
    for index, partition in broker.partitions.of_topic(topic.name).items():
        partition_log = partition.log
        offset = consumed_offset(
            (commit.get(index) for commit in commits), partition.high_watermark
        )
        if offset is None or partition.offline_reason is not None:
            continue
        if not partition_log.config.is_deleted or partition.topic_id != topic.topic_id:
            continue
        if offset > partition_log.log_start_offset:
            partition_log.delete_records_before(offset)
            has_moved = True
    return has_moved


async def _commits(broker: "Broker", topic: TopicState, group: str) -> dict[int, int]:
    """What a group has committed, by partition. Raises KafkaError while it cannot be told."""
    # Where there are no groups nobody has imported them.
    from millstream.coordinators import offsets
    from millstream.coordinators.codecs.changes import CommittedOffset

    indexes = list(broker.partitions.of_topic(topic.name))
    answer = broker.coordinators.submit(
        group,
        lambda state, env: offsets.fetch(
            state,
            group,
            topics=[(topic.name, indexes)],
            member_id=None,
            member_epoch=-1,
            require_stable=True,
        ),
    )
    [found] = await answer if isinstance(answer, asyncio.Future) else answer
    return {
        index: committed.offset
        for index, committed in found.partitions
        # A commit to an older topic of the same name says nothing about this one.
        if isinstance(committed, CommittedOffset)
        and committed.topic_id in (NO_TOPIC_ID, topic.topic_id)
    }
