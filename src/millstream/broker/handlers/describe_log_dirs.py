"""DescribeLogDirs (35), versions 1-5."""

import os

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode
from millstream.replication.partition import Partition
from millstream.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from millstream.wire.message import Message


async def handle(
    node: NodeState, turns: Turns, request: Request, body: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if node.disk.failure is not None:
        failed = _directory(node, KafkaCode.KAFKA_STORAGE_ERROR, [])
        return DescribeLogDirsResponse(error_code=KafkaCode.NONE, results=[failed])
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    wanted = await _wanted(node, turns, request, body)
    async for partition in turns.each_in_line(request, wanted):
        where = partition.topic_partition
        by_topic.setdefault(where.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=where.partition,
                partition_size=partition.log.segments.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
        )
    topics = [DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in by_topic.items()]
    return DescribeLogDirsResponse(
        error_code=KafkaCode.NONE, results=[_directory(node, KafkaCode.NONE, topics)]
    )


def refuse(request: Request, body: DescribeLogDirsRequest, code: KafkaCode) -> Message:
    return DescribeLogDirsResponse(error_code=code, results=[])


async def _wanted(
    node: NodeState, turns: Turns, request: Request, body: DescribeLogDirsRequest
) -> list[Partition]:
    topics = body.topics
    if topics is None:
        return list(node.partitions)
    named = await turns.prepared(
        request,
        lambda each: dict.fromkeys(
            each((topic.topic, index) for topic in topics for index in topic.partitions)
        ),
    )
    return [
        partition
        async for where in turns.each_in_line(request, named)
        if (partition := node.partitions.find(*where)) is not None
    ]


def _directory(
    node: NodeState, code: KafkaCode, topics: list[DescribeLogDirsTopic]
) -> DescribeLogDirsResult:
    total = usable = -1
    if code == KafkaCode.NONE:
        stat = os.statvfs(node.disk.path)
        total, usable = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    return DescribeLogDirsResult(
        error_code=code,
        log_dir=str(node.disk.path),
        topics=topics,
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
