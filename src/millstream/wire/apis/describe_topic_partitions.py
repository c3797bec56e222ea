"""DescribeTopicPartitions (75): topics page by page, in name order."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import NO_OPERATIONS, Int16, Int32, Message, Request


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], key=75, versions=(0, 0), flexible_from=0
):
    topics: list[DescribeTopicPartitionsTopic]
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsCursor | None = None


class DescribeTopicPartitionsTopic(Message):
    name: str


class DescribeTopicPartitionsCursor(Message):
    topic_name: str
    partition_index: Int32


class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DescribedTopic]
    next_cursor: DescribeTopicPartitionsCursor | None = None


class DescribedTopic(Message):
    error_code: Int16
    name: str | None
    topic_id: UUID
    is_internal: bool = False
    partitions: list[DescribedPartition]
    topic_authorized_operations: Int32 = NO_OPERATIONS


class DescribedPartition(Message):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32]
