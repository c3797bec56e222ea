"""DescribeShareGroupOffsets (90), versions 0-1: where share groups start; the lag from 1."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final
from uuid import UUID

from millstream.broker.coordination.share_lag import end_offsets
from millstream.broker.coordination.share_state import for_each
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.node.state import NodeState
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import RESPONSE_BYTES_MAX, TOO_LARGE, Turns, once
from millstream.cluster.state import TopicState
from millstream.coordinators.codecs.changes import SharedTopic
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
# So many partitions are looked up in one step. Each may be a request to a share coordinator.
_AT_ONCE_MAX: Final = 20
# What is in memory of a response until it is encoded, about.
_GROUP_BYTES: Final = 500
_TOPIC_BYTES: Final = 500
_PARTITION_BYTES: Final = 200


async def handle(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse:
    wanted = await turns.prepared(
        request, lambda each: once(each(body.groups), key=lambda group: group.group_id)
    )
    description = _Description(sharing, node, turns, permissions, request)
    groups = [await description.group(each) async for each in turns.each_in_line(request, wanted)]
    return DescribeShareGroupOffsetsResponse(groups=groups)


class _Description:
    """What one request gets to know. Groups for which no room is left are refused."""

    def __init__(
        self,
        sharing: Sharing,
        node: NodeState,
        turns: Turns,
        permissions: Permissions,
        request: Request,
    ) -> None:
        self._sharing = sharing
        self._node = node
        self._turns = turns
        self._permissions = permissions
        self._request = request
        self._bytes_left = RESPONSE_BYTES_MAX

    def _take(self, size_bytes: int) -> None:
        """Raises KafkaError if the response has no room for that."""
        self._bytes_left -= size_bytes
        if self._bytes_left < 0:
            raise KafkaError(KafkaCode.INVALID_REQUEST, TOO_LARGE)

    async def group(self, wanted: ShareOffsetsWanted) -> ShareOffsets:
        turns, request = self._turns, self._request
        answer = ShareOffsets(
            group_id=wanted.group_id, topics=[], error_code=KafkaCode.NONE, error_message=None
        )
        try:
            self._permissions.require(request, ResourceType.GROUP, wanted.group_id)
            self._take(_GROUP_BYTES + len(wanted.group_id))
            topics = wanted.topics
            if topics is None:
                topics = await self._all_topics(wanted.group_id)
            numbers = await turns.prepared(request, partial(_numbers_by_topic, topics))
            answer.topics = [
                await self._topic(wanted.group_id, name, list(numbers[name]))
                async for name in turns.each_in_line(request, numbers)
            ]
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        return answer

    async def _all_topics(self, group_id: str) -> list[ShareOffsetsTopicWanted]:
        """Those that the group has begun to read, and the client may see. A group that does not
        exist has none."""

        def known(state: ShardState) -> list[SharedTopic]:
            group = state.groups.get(group_id)
            return list(group.topics.initialized.values()) if isinstance(group, ShareGroup) else []

        answer = self._sharing.groups.submit(
            group_id, lambda state, env: Decision(reply=known(state))
        )
        return [
            ShareOffsetsTopicWanted(topic_name=topic.name, partitions=list(topic.partitions))
            for topic in await wait_for(answer)
            if self._permissions.allows(self._request, ResourceType.TOPIC, topic.name, LISTING)
        ]

    async def _topic(self, group_id: str, name: str, numbers: list[int]) -> ShareOffsetsTopic:
        self._take(_TOPIC_BYTES + len(name))
        topic = self._node.image.topics.get(name)
        denied = self._permissions.denial(self._request, ResourceType.TOPIC, name)
        unknown = KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
        why = unknown if denied is None else denied.error()
        if denied is not None:
            topic = None
        count = 0 if topic is None else len(topic.partitions)
        rows: list[ShareOffsetsPartition] = []
        async for part in self._turns.each_in_line(self._request, _parts(numbers)):
            self._take(_PARTITION_BYTES * len(part))
            there = [number for number in part if 0 <= number < count]
            known: dict[int, ShareOffsetsPartition] = {}
            if topic is not None and there:
                known = await _partitions(self._sharing, self._node, group_id, topic, there)
            rows += [known.get(number) or _refused(number, why) for number in part]
        topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
        return ShareOffsetsTopic(topic_name=name, topic_id=topic_id, partitions=rows)


def _numbers_by_topic(
    topics: Iterable[ShareOffsetsTopicWanted], each: Each
) -> dict[str, dict[int, None]]:
    """The partitions of each topic, once."""
    found: dict[str, dict[int, None]] = {}
    for topic in each(topics):
        numbers = found.setdefault(topic.topic_name, {})
        for number in each(topic.partitions):
            numbers[number] = None
    return found


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
