"""CreatePartitions (37): more partitions for a topic."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request


class CreatePartitionsRequest(
    Request["CreatePartitionsResponse"], key=37, versions=(0, 3), flexible_from=2
):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool


class CreatePartitionsTopic(Message):
    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32]


class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsResult]


class CreatePartitionsResult(Message):
    name: str
    error_code: Int16
    error_message: str | None = None
