"""SyncGroup (14): the leader of a classic group assigns, every member gets its part."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Message, Request, since


class SyncGroupRequest(Request["SyncGroupResponse"], key=14, versions=(0, 5), flexible_from=4):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)
    protocol_type: str | None = since(5, default=None)
    protocol_name: str | None = since(5, default=None)
    assignments: list[SyncGroupAssignment]


class SyncGroupAssignment(Message):
    member_id: str
    assignment: Bytes


class SyncGroupResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16
    protocol_type: str | None = since(5, default=None)
    protocol_name: str | None = since(5, default=None)
    assignment: Bytes
