"""DescribeLogDirs (35), versions 1-5."""

import os
from typing import TYPE_CHECKING

from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.replication.partition import Partition
from millstream.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if broker.disk_failure is not None:
        failed = _directory(broker, KafkaCode.KAFKA_STORAGE_ERROR, [])
        return DescribeLogDirsResponse(error_code=KafkaCode.NONE, results=[failed])
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in _wanted(broker, body):
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
        error_code=KafkaCode.NONE, results=[_directory(broker, KafkaCode.NONE, topics)]
    )


def _wanted(broker: "Broker", body: DescribeLogDirsRequest) -> list[Partition]:
    if body.topics is None:
        return list(broker.partitions)
    found = (
        broker.partitions.find(topic.topic, index)
        for topic in body.topics
        for index in topic.partitions
    )
    return [partition for partition in found if partition is not None]


def _directory(
    broker: "Broker", code: KafkaCode, topics: list[DescribeLogDirsTopic]
) -> DescribeLogDirsResult:
    total = usable = -1
    if code == KafkaCode.NONE:
        stat = os.statvfs(broker.data_dir)
        total, usable = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    return DescribeLogDirsResult(
        error_code=code,
        log_dir=str(broker.data_dir),
        topics=topics,
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
