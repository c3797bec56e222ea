"""DeleteAcls (31): remove the ACLs that filters select."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request


class DeleteAclsRequest(Request["DeleteAclsResponse"], key=31, versions=(1, 3), flexible_from=2):
    filters: list[DeleteAclsFilter]


class DeleteAclsFilter(Message):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class DeleteAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult]


class DeleteAclsFilterResult(Message):
    error_code: Int16
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsMatchingAcl(Message):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8
