"""Heartbeat (12): a member of a classic group is alive."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request, since


class HeartbeatRequest(Request["HeartbeatResponse"], key=12, versions=(0, 4), flexible_from=4):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)


class HeartbeatResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16
