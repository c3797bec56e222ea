"""AlterShareGroupOffsets (91): where a share group without members begins again."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Int64, Message, Request


class AlterShareGroupOffsetsRequest(
    Request["AlterShareGroupOffsetsResponse"], key=91, versions=(0, 0), flexible_from=0
):
    group_id: str
    topics: list[ShareOffsetsAlteredTopic]


class ShareOffsetsAlteredTopic(Message):
    topic_name: str
    partitions: list[ShareOffsetsAlteredPartition]


class ShareOffsetsAlteredPartition(Message):
    partition_index: Int32
    start_offset: Int64


class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    responses: list[ShareOffsetsAlteredTopicResponse]


class ShareOffsetsAlteredTopicResponse(Message):
    topic_name: str
    topic_id: UUID
    partitions: list[ShareOffsetsAlteredPartitionResponse]


class ShareOffsetsAlteredPartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
