"""CreateAcls (30): add ACLs."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request


class CreateAclsRequest(Request["CreateAclsResponse"], key=30, versions=(1, 3), flexible_from=2):
    creations: list[AclCreation]


class AclCreation(Message):
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]


class AclCreationResult(Message):
    error_code: Int16
    error_message: str | None
