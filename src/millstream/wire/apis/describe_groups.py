"""DescribeGroups (15): classic groups and their members."""

from __future__ import annotations

from millstream.wire.message import NO_OPERATIONS, Bytes, Int16, Int32, Message, Request, since


class DescribeGroupsRequest(
    Request["DescribeGroupsResponse"], key=15, versions=(0, 6), flexible_from=5
):
    groups: list[str]
    include_authorized_operations: bool = since(3, default=False)


class DescribeGroupsResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0)
    groups: list[DescribeGroupsGroup]


class DescribeGroupsGroup(Message):
    error_code: Int16
    error_message: str | None = since(6, default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribeGroupsMember]
    authorized_operations: Int32 = since(3, default=NO_OPERATIONS)


class DescribeGroupsMember(Message):
    member_id: str
    group_instance_id: str | None = since(4, default=None)
    client_id: str
    client_host: str
    member_metadata: Bytes
    member_assignment: Bytes
