"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of an epoch. It shows a reader
whether records that it read were removed."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResponse,
)


def handle(
    node: NodeState, request: Request, body: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResponse(
                topic=topic.topic,
                partitions=[_one(node, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _one(node: NodeState, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(
        error_code=KafkaCode.NONE, partition=wanted.partition, leader_epoch=-1, end_offset=-1
    )
    try:
        partition = node.partitions.get(topic, wanted.partition)
        partition.require_online()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        if wanted.leader_epoch == partition.leader_epoch:
            answer.leader_epoch = partition.leader_epoch
            answer.end_offset = partition.log.next_offset
        else:
            answer.leader_epoch, answer.end_offset = partition.log.epochs.end_offset_for(
                wanted.leader_epoch
            )
    except KafkaError as error:
        answer.error_code = error.code
    return answer
