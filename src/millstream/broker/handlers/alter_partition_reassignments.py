"""AlterPartitionReassignments (45), versions 0-1: move partitions to other nodes, or stop that."""

from typing import TYPE_CHECKING

from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignedPartition,
    ReassignedTopic,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


async def handle(
    broker: "Broker", request: Request, body: AlterPartitionReassignmentsRequest
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
                    await _alter(broker, topic.name, wanted, may_resize=may_resize)
                    for wanted in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )


async def _alter(
    broker: "Broker", topic: str, wanted: ReassignablePartition, *, may_resize: bool
) -> ReassignedPartition:
    if broker.leaders is None:
        return _one(broker, topic, wanted)
    where = TopicPartition(topic, wanted.partition_index)
    code, message = KafkaCode.NONE, None
    try:
        if wanted.replicas is None:
            await broker.leaders.cancel(where)
        else:
            await broker.leaders.reassign(where, wanted.replicas, may_resize=may_resize)
    except KafkaError as error:
        code, message = error.code, error.message
    return ReassignedPartition(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )


def _one(broker: "Broker", topic: str, wanted: ReassignablePartition) -> ReassignedPartition:
    """One node alone: everything is here, and stays."""
    code, message = KafkaCode.NONE, None
    if broker.partitions.find(topic, wanted.partition_index) is None:
        code, message = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"
    elif wanted.replicas is None:
        code, message = KafkaCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel"
    elif list(wanted.replicas) != [broker.node_id]:
        code = KafkaCode.INVALID_REPLICA_ASSIGNMENT
        message = f"broker {broker.node_id} is the only one"
    return ReassignedPartition(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )
