"""DescribeCluster (60), versions 0-2."""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.security.acl import CLUSTER_NAME, ResourceType
from millstream.wire.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millstream.wire.message import NO_OPERATIONS

BROKERS: Final = 1


def handle(
    node: NodeState, permissions: Permissions, request: Request, body: DescribeClusterRequest
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
        cluster_authorized_operations=cluster_operations(
            permissions, request, is_wanted=body.include_cluster_authorized_operations
        ),
        brokers=_brokers(node, request.listener) if code == KafkaCode.NONE else [],
    )


def cluster_operations(permissions: Permissions, request: Request, *, is_wanted: bool) -> int:
    """What the client may do with the cluster, as Kafka's bit field."""
    if not is_wanted:
        return NO_OPERATIONS
    if not permissions.allows_cluster(request):
        return 0
    return permissions.operations(request, ResourceType.CLUSTER, CLUSTER_NAME)


def _brokers(node: NodeState, listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
        for one in node.cluster.brokers(listener)
    ]
