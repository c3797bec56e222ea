"""AlterPartitionReassignments (45): move partitions to other nodes, or cancel that."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request, since


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], key=45, versions=(0, 1), flexible_from=0
):
    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: bool = since(1, default=True)
    topics: list[ReassignableTopic]


class ReassignableTopic(Message):
    name: str
    partitions: list[ReassignablePartition]


class ReassignablePartition(Message):
    partition_index: Int32
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: bool = since(1, default=True)
    error_code: Int16
    error_message: str | None
    responses: list[ReassignedTopic]


class ReassignedTopic(Message):
    name: str
    partitions: list[ReassignedPartition]


class ReassignedPartition(Message):
    partition_index: Int32
    error_code: Int16
    error_message: str | None
