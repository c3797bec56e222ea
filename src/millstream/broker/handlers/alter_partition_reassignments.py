"""AlterPartitionReassignments (45), versions 0-1: move partitions to other nodes, or cancel."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignedPartition,
    ReassignedTopic,
)
from millstream.wire.message import Message


async def handle(
    node: NodeState, turns: Turns, request: Request, body: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    may_resize = body.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize,
        error_code=KafkaCode.NONE,
        error_message=None,
        responses=[
            ReassignedTopic(
                name=topic.name,
                partitions=[
                    await _alter(node, topic.name, wanted, may_resize=may_resize)
                    async for wanted in turns.each(request, topic.partitions)
                ],
            )
            async for topic in turns.each(request, body.topics)
        ],
    )


def refuse(request: Request, body: AlterPartitionReassignmentsRequest, code: KafkaCode) -> Message:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=None, responses=[])


async def _alter(
    node: NodeState, topic: str, wanted: ReassignablePartition, *, may_resize: bool
) -> ReassignedPartition:
    where = TopicPartition(topic, wanted.partition_index)
    code, message = KafkaCode.NONE, None
    try:
        if wanted.replicas is None:
            await node.cluster.elections.cancel(where)
        else:
            await node.cluster.elections.reassign(where, wanted.replicas, may_resize=may_resize)
    except KafkaError as error:
        code, message = error.code, error.message
    return ReassignedPartition(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )
