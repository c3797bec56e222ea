"""ListOffsets (2): the ends of a partition, and offsets by timestamp."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Int64, Message, Request, since


class ListOffsetsRequest(Request["ListOffsetsResponse"], key=2, versions=(1, 11), flexible_from=6):
    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0)


class ListOffsetsTopic(Message):
    name: str
    partitions: list[ListOffsetsPartition]


class ListOffsetsPartition(Message):
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1)
    timestamp: Int64


class ListOffsetsResponse(Message):
    throttle_time_ms: Int32 = since(2, default=0)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsTopicResponse(Message):
    name: str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsPartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)
