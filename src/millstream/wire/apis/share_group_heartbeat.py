"""ShareGroupHeartbeat (76): membership of a share group (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Message, Request


class ShareGroupHeartbeatRequest(
    Request["ShareGroupHeartbeatResponse"], key=76, versions=(1, 1), flexible_from=0
):
    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: ShareGroupAssignment | None = None


class ShareGroupAssignment(Message):
    topic_partitions: list[ShareGroupTopicPartitions]


class ShareGroupTopicPartitions(Message):
    topic_id: UUID
    partitions: list[Int32]
