"""AlterReplicaLogDirs (34), versions 1-2: a node has one directory, and replicas stay there."""

from collections.abc import Callable

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirsPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsTopicResult,
)
from millstream.wire.message import Message


def handle(
    node: NodeState, request: Request, body: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    return _answer(body, lambda path, topic, index: _code(node, path, topic, index))


def refuse(request: Request, body: AlterReplicaLogDirsRequest, code: KafkaCode) -> Message:
    return _answer(body, lambda path, topic, index: code)


def _code(node: NodeState, path: str, topic: str, index: int) -> KafkaCode:
    if path != str(node.disk.path):
        return KafkaCode.LOG_DIR_NOT_FOUND
    if node.disk.failure is not None:
        return KafkaCode.KAFKA_STORAGE_ERROR
    if node.image.partition(topic, index) is None:
        return KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    is_here = node.partitions.find(topic, index) is not None
    return KafkaCode.NONE if is_here else KafkaCode.NOT_LEADER_OR_FOLLOWER


def _answer(
    body: AlterReplicaLogDirsRequest, code_of: Callable[[str, str, int], KafkaCode]
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsPartitionResult(
                        partition_index=index,
                        error_code=code_of(directory.path, topic.name, index),
                    )
                    for index in topic.partitions
                ],
            )
            for directory in body.dirs
            for topic in directory.topics
        ]
    )
