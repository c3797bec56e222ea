"""ListPartitionReassignments (46), version 0: none is ever under way on one node."""

from typing import TYPE_CHECKING

from millstream.broker.requests.request import Request
from millstream.cluster.state import PartitionState
from millstream.errors import KafkaCode
from millstream.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if body.topics is not None:
        wanted = {(topic.name, i) for topic in body.topics for i in topic.partition_indexes}
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    for moving in broker.leaders.reassignments() if broker.leaders is not None else ():
        where = moving.where
        if wanted is None or (where.topic, where.partition) in wanted:
            shown = _partition(where.partition, moving.state)
            found.setdefault(where.topic, []).append(shown)
    topics = [
        OngoingTopicReassignment(name=name, partitions=partitions)
        for name, partitions in found.items()
    ]
    return ListPartitionReassignmentsResponse(
        error_code=KafkaCode.NONE, error_message=None, topics=topics
    )


def _partition(index: int, state: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding),
        removing_replicas=list(state.removing),
    )
