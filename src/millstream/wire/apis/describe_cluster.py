"""DescribeCluster (60): the nodes and the controller."""

from __future__ import annotations

from millstream.wire.message import NO_OPERATIONS, Int8, Int16, Int32, Message, Request, since


class DescribeClusterRequest(
    Request["DescribeClusterResponse"], key=60, versions=(0, 2), flexible_from=0
):
    include_cluster_authorized_operations: bool
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: bool = since(2, default=False)


class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = NO_OPERATIONS


class DescribeClusterBroker(Message):
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: bool = since(2, default=False)
