"""OffsetDelete (47): delete a group's committed offsets of topics."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], key=47, versions=(0, 0)):
    group_id: str
    topics: list[OffsetDeleteTopic]


class OffsetDeleteTopic(Message):
    name: str
    partitions: list[OffsetDeletePartition]


class OffsetDeletePartition(Message):
    partition_index: Int32


class OffsetDeleteResponse(Message):
    error_code: Int16
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteTopicResponse]


class OffsetDeleteTopicResponse(Message):
    name: str
    partitions: list[OffsetDeletePartitionResponse]


class OffsetDeletePartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
