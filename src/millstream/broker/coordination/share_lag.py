"""Where partitions end, wherever their leaders are: for the lag of share groups."""

import asyncio
from collections.abc import Iterable
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.client.aio import NoAnswer
from millstream.cluster.state import NO_LEADER, TopicState
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

_LATEST: Final = -1
_VERSION: Final = 7
_SECONDS_MAX: Final = 10.0


async def end_offsets(node: NodeState, topic: TopicState, numbers: Iterable[int]) -> dict[int, int]:
    """By partition; those that cannot be asked now are missing."""
    ends: dict[int, int] = {}
    others: dict[int, list[int]] = {}
    for number in numbers:
        leader = node.cluster.other_leader(topic.name, number)
        if leader is None:
            partition = node.partitions.find(topic.name, number)
            if partition is not None:
                ends[number] = partition.high_watermark
        elif leader != NO_LEADER:
            others.setdefault(leader, []).append(number)
    asked = [_ask(node, leader, topic.name, wanted) for leader, wanted in others.items()]
    for found in await asyncio.gather(*asked):
        ends.update(found)
    return ends


async def _ask(node: NodeState, leader: int, topic: str, numbers: list[int]) -> dict[int, int]:
    rows = [ListOffsetsPartition(partition_index=number, timestamp=_LATEST) for number in numbers]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)]
    )
    try:
        answer = await node.cluster.peers.ask(
            leader, request, _VERSION, timeout_seconds=_SECONDS_MAX
        )
    except (NoAnswer, KafkaError):
        return {}
    return {
        row.partition_index: row.offset
        for found in answer.topics
        for row in found.partitions
        if row.error_code == KafkaCode.NONE
    }
