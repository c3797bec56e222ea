"""DescribeShareGroupOffsets (90): where the partitions of share groups start, and their lag."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class DescribeShareGroupOffsetsRequest(
    Request["DescribeShareGroupOffsetsResponse"], key=90, versions=(0, 1), flexible_from=0
):
    groups: list[ShareOffsetsWanted]


class ShareOffsetsWanted(Message):
    """Without topics: all of the group."""

    group_id: str
    topics: list[ShareOffsetsTopicWanted] | None


class ShareOffsetsTopicWanted(Message):
    topic_name: str
    partitions: list[Int32]


class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[ShareOffsets]


class ShareOffsets(Message):
    group_id: str
    topics: list[ShareOffsetsTopic]
    error_code: Int16
    error_message: str | None = None


class ShareOffsetsTopic(Message):
    topic_name: str
    topic_id: UUID
    partitions: list[ShareOffsetsPartition]


class ShareOffsetsPartition(Message):
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = since(1, default=-1)
    error_code: Int16
    error_message: str | None = None
