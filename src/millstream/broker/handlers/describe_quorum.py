"""DescribeQuorum (55), versions 0-2: the controller, and the nodes that may become it.

There is no metadata log: ZooKeeper, or a standalone node's database, keeps what Kafka keeps
there. All offsets are 0, so no tool shows a lag.
"""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.wire.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
from millstream.wire.message import Message

NAMES_FEW = True
METADATA_TOPIC: Final = "__cluster_metadata"


def handle(
    node: NodeState, request: Request, body: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    brokers = sorted(node.cluster.brokers(request.listener), key=lambda one: one.node_id)
    voters = [QuorumReplica(replica_id=one.node_id, log_end_offset=0) for one in brokers]
    nodes = [
        QuorumNode(
            node_id=one.node_id,
            listeners=[QuorumListener(name=request.listener, host=one.host, port=one.port)],
        )
        for one in brokers
    ]
    topics = [
        QuorumTopic(
            topic_name=topic.topic_name,
            partitions=[
                _partition(node, topic.topic_name, wanted.partition_index, voters)
                for wanted in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return DescribeQuorumResponse(error_code=KafkaCode.NONE, topics=topics, nodes=nodes)


def refuse(request: Request, body: DescribeQuorumRequest, code: KafkaCode) -> Message:
    return DescribeQuorumResponse(error_code=code, topics=[])


def _partition(
    node: NodeState, topic: str, index: int, voters: list[QuorumReplica]
) -> QuorumPartition:
    if (topic, index) != (METADATA_TOPIC, 0):
        return QuorumPartition(
            partition_index=index,
            error_code=KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only {METADATA_TOPIC}-0 has a quorum",
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
            current_voters=[],
            observers=[],
        )
    return QuorumPartition(
        partition_index=index,
        error_code=KafkaCode.NONE,
        leader_id=node.cluster.controller_id,
        leader_epoch=max(node.image.controller_epoch, 0),
        high_watermark=0,
        current_voters=voters,
        observers=[],
    )
