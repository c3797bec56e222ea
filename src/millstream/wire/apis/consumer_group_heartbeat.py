"""ConsumerGroupHeartbeat (68): the entire consumer protocol (KIP-848)."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Message, Request, since


class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"], key=68, versions=(0, 1), flexible_from=0
):
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = since(1, default=None)
    server_assignor: str | None = None
    topic_partitions: list[HeartbeatTopicPartitions] | None = None


class HeartbeatTopicPartitions(Message):
    topic_id: UUID
    partitions: list[Int32]


class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: HeartbeatAssignment | None = None


class HeartbeatAssignment(Message):
    topic_partitions: list[HeartbeatTopicPartitions]
