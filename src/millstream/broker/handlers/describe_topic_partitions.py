"""DescribeTopicPartitions (75), version 0: topics page by page, in name order."""

from collections.abc import Coroutine, Iterable, Sequence
from heapq import nsmallest
from typing import Any

from millstream.broker.node.state import NodeState
from millstream.broker.requests import topic_view
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.cluster.state import TopicState
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID, TopicId, topic_name_problem
from millstream.security.acl import ResourceType
from millstream.security.operations import LISTING
from millstream.wire.apis.describe_topic_partitions import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)


def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse | Coroutine[Any, Any, DescribeTopicPartitionsResponse]:
    room_max = node.config.int("max.request.partition.size.limit")
    room = min(max(body.response_partition_limit, 1), room_max)
    start = "" if body.cursor is None else body.cursor.topic_name
    if body.topics:
        return turns.prepare(
            request,
            # Not a set: the collector never looks into a dict of strings, which may be many.
            lambda each: _first(
                each(dict.fromkeys(topic.name for topic in each(body.topics))), start, room
            ),
            lambda names: _answer_page(node, permissions, turns, request, body, room, names),
        )
    listed = (
        name
        for name in node.image.topics
        if permissions.allows(request, ResourceType.TOPIC, name, LISTING)
    )
    names = _first(listed, start, room)
    return _answer_page(node, permissions, turns, request, body, room, names)


def _first(names: Iterable[str], start: str, room: int) -> list[str]:
    """Each takes some of the room, so that no more can be shown."""
    return nsmallest(room + 1, (name for name in names if name >= start))


async def _answer_page(
    node: NodeState,
    permissions: Permissions,
    turns: Turns,
    request: Request,
    body: DescribeTopicPartitionsRequest,
    room: int,
    names: Sequence[str],
) -> DescribeTopicPartitionsResponse:
    start, first_index = "", 0
    cursor = body.cursor
    if cursor is not None:
        start, first_index = cursor.topic_name, max(cursor.partition_index, 0)
    topics: list[DescribedTopic] = []
    async for name in turns.each_in_line(request, names):
        index = first_index if name == start else 0
        if room == 0:
            return _answer(
                topics, DescribeTopicPartitionsCursor(topic_name=name, partition_index=index)
            )
        denied = permissions.denial(request, ResourceType.TOPIC, name)
        if denied is not None:
            topics.append(_topic(name, NO_TOPIC_ID, denied.code))
            room -= 1
            continue
        described, shown, is_whole = _page(node, name, index, room)
        if described.error_code == KafkaCode.NONE:
            operations = permissions.operations(request, ResourceType.TOPIC, name)
            described.topic_authorized_operations = operations
        topics.append(described)
        room -= max(shown, 1)
        if not is_whole:
            return _answer(
                topics,
                DescribeTopicPartitionsCursor(topic_name=name, partition_index=index + shown),
            )
    return _answer(topics, None)


def _page(node: NodeState, name: str, index: int, room: int) -> tuple[DescribedTopic, int, bool]:
    topic = node.image.topics.get(name)
    if topic is None:
        code = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_name_problem(name) is not None:
            code = KafkaCode.INVALID_TOPIC_EXCEPTION
        return _topic(name, NO_TOPIC_ID, code), 0, True
    end = min(index + room, len(topic.partitions))
    described = _topic(name, topic.topic_id, KafkaCode.NONE)
    described.is_internal = topic.is_internal
    described.partitions = [_partition(node, topic, i) for i in range(index, end)]
    return described, max(end - index, 0), end >= len(topic.partitions)


def _topic(name: str, topic_id: TopicId, code: KafkaCode) -> DescribedTopic:
    return DescribedTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _partition(node: NodeState, topic: TopicState, index: int) -> DescribedPartition:
    state = topic.partitions[index]
    shown = topic_view.partition(node, topic, index)
    return DescribedPartition(
        error_code=shown.error_code,
        partition_index=index,
        leader_id=shown.leader_id,
        leader_epoch=shown.leader_epoch,
        replica_nodes=shown.replica_nodes,
        isr_nodes=shown.isr_nodes,
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=shown.offline_replicas,
    )


def _answer(
    topics: list[DescribedTopic], next_cursor: DescribeTopicPartitionsCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)
