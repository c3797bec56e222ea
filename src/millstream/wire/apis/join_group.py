"""JoinGroup (11): become or stay a member of a classic group."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Message, Request, since


class JoinGroupRequest(Request["JoinGroupResponse"], key=11, versions=(0, 9), flexible_from=6):
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1)
    member_id: str
    group_instance_id: str | None = since(5, default=None)
    protocol_type: str
    protocols: list[JoinGroupProtocol]
    reason: str | None = since(8, default=None)


class JoinGroupProtocol(Message):
    name: str
    metadata: Bytes


class JoinGroupResponse(Message):
    throttle_time_ms: Int32 = since(2, default=0)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: str | None = since(7, default=None)
    protocol_name: str | None = since(0, nullable_since=7)
    leader: str
    skip_assignment: bool = since(9, default=False)
    member_id: str
    members: list[JoinGroupMember]


class JoinGroupMember(Message):
    member_id: str
    group_instance_id: str | None = since(5, default=None)
    metadata: Bytes
