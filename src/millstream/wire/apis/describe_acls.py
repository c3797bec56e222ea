"""DescribeAcls (29): the ACLs that a filter selects."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request


class DescribeAclsRequest(
    Request["DescribeAclsResponse"], key=29, versions=(1, 3), flexible_from=2
):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    resources: list[DescribeAclsResource]


class DescribeAclsResource(Message):
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    acls: list[AclDescription]


class AclDescription(Message):
    principal: str
    host: str
    operation: Int8
    permission_type: Int8
