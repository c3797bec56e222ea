"""OffsetCommit (8): commit the offsets of a group."""

from __future__ import annotations

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class OffsetCommitRequest(
    Request["OffsetCommitResponse"], key=8, versions=(2, 10), flexible_from=8
):
    group_id: str
    generation_id_or_member_epoch: Int32 = since(1, default=-1)
    member_id: str = since(1, default="")
    group_instance_id: str | None = since(7, default=None)
    retention_time_ms: Int64 = since(2, until=4, default=-1)
    topics: list[OffsetCommitTopic]


class OffsetCommitTopic(Message):
    name: str = since(0, until=9, default="")
    topic_id: UUID = since(10, default=NO_TOPIC_ID)
    partitions: list[OffsetCommitPartition]


class OffsetCommitPartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1)
    committed_metadata: str | None


class OffsetCommitResponse(Message):
    throttle_time_ms: Int32 = since(3, default=0)
    topics: list[OffsetCommitTopicResponse]


class OffsetCommitTopicResponse(Message):
    name: str = since(0, until=9, default="")
    topic_id: UUID = since(10, default=NO_TOPIC_ID)
    partitions: list[OffsetCommitPartitionResponse]


class OffsetCommitPartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
