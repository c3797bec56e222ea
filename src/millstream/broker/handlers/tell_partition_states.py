"""TellPartitionStates (20004, ours): new states of partitions, before ZooKeeper's watches tell.

A failover changes thousands of states. To read them one by one takes seconds; the controller has
just written them, and sends them. They are in ZooKeeper already: nothing depends on this request.
"""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.cluster.stores.store import Node
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.tell_partition_states import (
    TellPartitionStatesRequest,
    TellPartitionStatesResponse,
)


def handle(
    node: NodeState, request: Request, body: TellPartitionStatesRequest
) -> TellPartitionStatesResponse:
    if request.connection.proved_node_id < 0:
        return TellPartitionStatesResponse(error_code=KafkaCode.CLUSTER_AUTHORIZATION_FAILED)
    node.cluster.states_told(
        {
            TopicPartition(one.topic, one.partition): Node(bytes(one.data), one.version)
            for one in body.states
        }
    )
    return TellPartitionStatesResponse(error_code=KafkaCode.NONE)
