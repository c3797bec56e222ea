"""ListPartitionReassignments (46): partitions that are being moved."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], key=46, versions=(0, 0), flexible_from=0
):
    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopic] | None = None


class ListPartitionReassignmentsTopic(Message):
    name: str
    partition_indexes: list[Int32]


class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    topics: list[OngoingTopicReassignment]


class OngoingTopicReassignment(Message):
    name: str
    partitions: list[OngoingPartitionReassignment]


class OngoingPartitionReassignment(Message):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]
