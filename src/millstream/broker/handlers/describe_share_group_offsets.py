"""DescribeShareGroupOffsets (90), versions 0-1: where share groups start; the lag from 1."""

import asyncio
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from millstream.broker.coordination.share_lag import end_offsets
from millstream.broker.coordination.share_state import for_each
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.cluster.state import TopicState
from millstream.coordinators.codecs.share_state import NO_COUNT, NO_START, ShareKey, StoredShare
from millstream.coordinators.decision import Decision
from millstream.coordinators.groups.state import ShardState
from millstream.coordinators.share.group import ShareGroup
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.security.acl import ResourceType
from millstream.security.operations import LISTING
from millstream.wire.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareOffsets,
    ShareOffsetsPartition,
    ShareOffsetsTopic,
    ShareOffsetsTopicWanted,
    ShareOffsetsWanted,
)

_NO_LAG = -1
# So many partitions are looked up in one step.
_AT_ONCE_MAX: Final = 100


async def handle(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse:
    groups = [
        await _describe(sharing, node, turns, permissions, request, wanted)
        async for wanted in turns.each_in_line(request, body.groups)
    ]
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _describe(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    wanted: ShareOffsetsWanted,
) -> ShareOffsets:
    group_id = wanted.group_id
    answer = ShareOffsets(
        group_id=group_id, topics=[], error_code=KafkaCode.NONE, error_message=None
    )
    try:
        permissions.require(request, ResourceType.GROUP, group_id)
        if wanted.topics is None:
            topics = await _all_topics(sharing, group_id)
            topics = [
                topic
                for topic in topics
                if permissions.allows(request, ResourceType.TOPIC, topic.topic_name, LISTING)
            ]
        else:
            topics = wanted.topics
        answer.topics = [
            await _topic(sharing, node, turns, permissions, request, group_id, topic)
            async for topic in turns.each_in_line(request, topics)
        ]
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


async def _all_topics(sharing: Sharing, group_id: str) -> list[ShareOffsetsTopicWanted]:
    """Those that the group has begun to read. A group that does not exist has none."""

    def known(state: ShardState) -> list[ShareOffsetsTopicWanted]:
        group = state.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return []
        return [
            ShareOffsetsTopicWanted(topic_name=topic.name, partitions=list(topic.partitions))
            for topic in group.topics.initialized.values()
        ]

    answer = sharing.groups.submit(group_id, lambda state, env: Decision(reply=known(state)))
    return await wait_for(answer)


async def _topic(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    group_id: str,
    wanted: ShareOffsetsTopicWanted,
) -> ShareOffsetsTopic:
    topic = node.image.topics.get(wanted.topic_name)
    numbers = await turns.prepared(
        request, lambda each: list(dict.fromkeys(each(wanted.partitions)))
    )
    denied = permissions.denial(request, ResourceType.TOPIC, wanted.topic_name)
    unknown = KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    if denied is not None or topic is None:
        why = unknown if denied is None else denied.error()
        return ShareOffsetsTopic(
            topic_name=wanted.topic_name,
            topic_id=NO_TOPIC_ID,
            partitions=[
                _refused(number, why) async for number in turns.each_in_line(request, numbers)
            ],
        )
    count = len(topic.partitions)
    rows: list[ShareOffsetsPartition] = []
    async for part in turns.each_in_line(request, _parts(numbers)):
        there = [number for number in part if 0 <= number < count]
        known = await _partitions(sharing, node, group_id, topic, there)
        rows += [known.get(number) or _refused(number, unknown) for number in part]
    return ShareOffsetsTopic(topic_name=topic.name, topic_id=topic.topic_id, partitions=rows)


def _parts(numbers: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), _AT_ONCE_MAX):
        yield numbers[start : start + _AT_ONCE_MAX]


async def _partitions(
    sharing: Sharing, node: NodeState, group_id: str, topic: TopicState, numbers: list[int]
) -> dict[int, ShareOffsetsPartition]:
    found: dict[int, StoredShare] = {}

    async def read(key: ShareKey) -> None:
        found[key.partition] = await sharing.state.summary(key)

    places = [(topic.topic_id, number) for number in numbers]
    failed, ends = await asyncio.gather(
        for_each(group_id, places, read), end_offsets(node, topic, numbers)
    )
    return {
        number: _partition(topic, number, found.get(number), failed, ends) for number in numbers
    }


def _partition(
    topic: TopicState,
    number: int,
    found: StoredShare | None,
    failed: dict[tuple[UUID, int], KafkaError],
    ends: dict[int, int],
) -> ShareOffsetsPartition:
    answer = ShareOffsetsPartition(
        partition_index=number,
        start_offset=NO_START,
        leader_epoch=0,
        lag=_NO_LAG,
        error_code=KafkaCode.NONE,
        error_message=None,
    )
    if found is None:
        error = failed[topic.topic_id, number]
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    answer.start_offset, answer.leader_epoch = found.start_offset, found.leader_epoch
    is_known = found.start_offset != NO_START and found.finished_count != NO_COUNT
    if is_known and number in ends:
        answer.lag = max(ends[number] - found.start_offset - found.finished_count, 0)
    return answer


def _refused(number: int, error: KafkaError) -> ShareOffsetsPartition:
    return ShareOffsetsPartition(
        partition_index=number,
        start_offset=NO_START,
        leader_epoch=0,
        lag=_NO_LAG,
        error_code=error.code,
        error_message=error.message,
    )
