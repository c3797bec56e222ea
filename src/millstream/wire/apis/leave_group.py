"""LeaveGroup (13): members leave; from 3, several at once."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request, since


class LeaveGroupRequest(Request["LeaveGroupResponse"], key=13, versions=(0, 5), flexible_from=4):
    group_id: str
    member_id: str = since(0, until=2, default="")
    members: list[LeaveGroupMember] = since(3, default=[])


class LeaveGroupMember(Message):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = since(5, default=None)


class LeaveGroupResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16
    members: list[LeaveGroupMemberResponse] = since(3)


class LeaveGroupMemberResponse(Message):
    member_id: str
    group_instance_id: str | None
    error_code: Int16
