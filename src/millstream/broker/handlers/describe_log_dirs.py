"""DescribeLogDirs (35), versions 1-5."""

import os
from typing import TYPE_CHECKING

from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.replication.partition import Partition
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: Struct) -> Struct:
    if broker.disk_failure is not None:
        failed = _directory(broker, KafkaCode.KAFKA_STORAGE_ERROR, [])
        return Struct(error_code=KafkaCode.NONE, results=[failed])
    by_topic: dict[str, list[Struct]] = {}
    for partition in _wanted(broker, body):
        where = partition.topic_partition
        by_topic.setdefault(where.topic, []).append(
            Struct(
                partition_index=where.partition,
                partition_size=partition.log.segments.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
        )
    topics = [Struct(name=name, partitions=parts) for name, parts in by_topic.items()]
    return Struct(error_code=KafkaCode.NONE, results=[_directory(broker, KafkaCode.NONE, topics)])


def _wanted(broker: "Broker", body: Struct) -> list[Partition]:
    if body.topics is None:
        return list(broker.partitions)
    found = (
        broker.partitions.find(topic.topic, index)
        for topic in body.topics
        for index in topic.partitions
    )
    return [partition for partition in found if partition is not None]


def _directory(broker: "Broker", code: KafkaCode, topics: list[Struct]) -> Struct:
    total = usable = -1
    if code == KafkaCode.NONE:
        stat = os.statvfs(broker.data_dir)
        total, usable = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    return Struct(
        error_code=code,
        log_dir=str(broker.data_dir),
        topics=topics,
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
