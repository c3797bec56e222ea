"""ListPartitionReassignments (46), version 0. A standalone node never has any."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.cluster.state import PartitionState
from millstream.errors import KafkaCode
from millstream.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from millstream.wire.message import Message


async def handle(
    node: NodeState, turns: Turns, request: Request, body: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    topics = body.topics
    if topics is not None:
        wanted = await turns.prepared(
            request,
            lambda each: set(
                each((topic.name, i) for topic in topics for i in topic.partition_indexes)
            ),
        )
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    for moving in node.cluster.elections.reassignments():
        where = moving.where
        if wanted is None or (where.topic, where.partition) in wanted:
            shown = _partition(where.partition, moving.state)
            found.setdefault(where.topic, []).append(shown)
    return ListPartitionReassignmentsResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in found.items()
        ],
    )


def refuse(request: Request, body: ListPartitionReassignmentsRequest, code: KafkaCode) -> Message:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=None, topics=[])


def _partition(index: int, state: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding),
        removing_replicas=list(state.removing),
    )
