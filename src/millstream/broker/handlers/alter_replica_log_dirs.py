"""AlterReplicaLogDirs (34), versions 1-2: a node has one directory, and replicas stay there."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode
from millstream.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirsPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsTopicResult,
)
from millstream.wire.message import Message


async def handle(
    node: NodeState, turns: Turns, request: Request, body: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    own_path = str(node.disk.path)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsTopicResult(
                topic_name=topic.name,
                partitions=[
                    _result(index, _code(node, topic.name, index, is_here=is_here))
                    async for index in turns.each(request, topic.partitions)
                ],
            )
            async for directory in turns.each(request, body.dirs)
            for is_here in [directory.path == own_path]
            async for topic in turns.each(request, directory.topics)
        ]
    )


def refuse(request: Request, body: AlterReplicaLogDirsRequest, code: KafkaCode) -> Message:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsTopicResult(
                topic_name=topic.name,
                partitions=[_result(index, code) for index in topic.partitions],
            )
            for directory in body.dirs
            for topic in directory.topics
        ]
    )


def _code(node: NodeState, topic: str, index: int, *, is_here: bool) -> KafkaCode:
    """`is_here`: is the directory the one of this node?"""
    if not is_here:
        return KafkaCode.LOG_DIR_NOT_FOUND
    if node.disk.failure is not None:
        return KafkaCode.KAFKA_STORAGE_ERROR
    if node.image.partition(topic, index) is None:
        return KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    is_stored = node.partitions.find(topic, index) is not None
    return KafkaCode.NONE if is_stored else KafkaCode.NOT_LEADER_OR_FOLLOWER


def _result(index: int, code: KafkaCode) -> AlterReplicaLogDirsPartitionResult:
    return AlterReplicaLogDirsPartitionResult(partition_index=index, error_code=code)
