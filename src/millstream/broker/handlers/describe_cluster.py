"""DescribeCluster (60), versions 0-2."""

from typing import TYPE_CHECKING, Final

from millstream.broker.requests import topic_view
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.wire.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

BROKERS: Final = 1


def handle(
    broker: "Broker", request: Request, body: DescribeClusterRequest
) -> DescribeClusterResponse:
    code, message = KafkaCode.NONE, None
    if body.endpoint_type != BROKERS:
        code = KafkaCode.MISMATCHED_ENDPOINT_TYPE
        message = "this is a broker's listener; there are no controller listeners"
    return DescribeClusterResponse(
        error_code=code,
        error_message=message,
        endpoint_type=BROKERS,
        cluster_id=broker.image.cluster_id,
        controller_id=topic_view.controller_id(broker),
        brokers=_brokers(broker, request.listener) if code == KafkaCode.NONE else [],
    )


def _brokers(broker: "Broker", listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
        for one in topic_view.brokers(broker, listener)
    ]
