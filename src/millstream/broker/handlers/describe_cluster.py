"""DescribeCluster (60), versions 0-2."""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.wire.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1


def handle(
    node: NodeState, request: Request, body: DescribeClusterRequest
) -> DescribeClusterResponse:
    code, message = KafkaCode.NONE, None
    if body.endpoint_type != BROKERS:
        code = KafkaCode.MISMATCHED_ENDPOINT_TYPE
        message = "this is a broker's listener; there are no controller listeners"
    return DescribeClusterResponse(
        error_code=code,
        error_message=message,
        endpoint_type=BROKERS,
        cluster_id=node.image.cluster_id,
        controller_id=node.cluster.controller_id,
        brokers=_brokers(node, request.listener) if code == KafkaCode.NONE else [],
    )


def _brokers(node: NodeState, listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
        for one in node.cluster.brokers(listener)
    ]
