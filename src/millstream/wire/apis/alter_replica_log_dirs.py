"""AlterReplicaLogDirs (34): move replicas to another directory of their node."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request


class AlterReplicaLogDirsRequest(
    Request["AlterReplicaLogDirsResponse"], key=34, versions=(1, 2), flexible_from=2
):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDir(Message):
    path: str
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirTopic(Message):
    name: str
    partitions: list[Int32]


class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirsTopicResult]


class AlterReplicaLogDirsTopicResult(Message):
    topic_name: str
    partitions: list[AlterReplicaLogDirsPartitionResult]


class AlterReplicaLogDirsPartitionResult(Message):
    partition_index: Int32
    error_code: Int16
