"""OffsetFetch (9): the committed offsets of groups; from 8, several groups at once."""

from __future__ import annotations

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class OffsetFetchRequest(Request["OffsetFetchResponse"], key=9, versions=(1, 10), flexible_from=6):
    group_id: str = since(0, until=7, default="")
    topics: list[OffsetFetchTopic] | None = since(0, until=7, nullable_since=2, default=None)
    groups: list[OffsetFetchGroup] = since(8, default=[])
    require_stable: bool = since(7, default=False)


class OffsetFetchGroup(Message):
    group_id: str
    member_id: str | None = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    topics: list[OffsetFetchTopic] | None


class OffsetFetchTopic(Message):
    name: str = since(0, until=9, default="")
    topic_id: UUID = since(10, default=NO_TOPIC_ID)
    partition_indexes: list[Int32]


class OffsetFetchResponse(Message):
    throttle_time_ms: Int32 = since(3, default=0)
    topics: list[OffsetFetchTopicResponse] = since(0, until=7, default=[])
    error_code: Int16 = since(2, until=7, default=0)
    groups: list[OffsetFetchGroupResponse] = since(8, default=[])


class OffsetFetchPartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1)
    metadata: str | None
    error_code: Int16


class OffsetFetchGroupResponse(Message):
    group_id: str
    topics: list[OffsetFetchTopicResponse]
    error_code: Int16


class OffsetFetchTopicResponse(Message):
    name: str = since(0, until=9, default="")
    topic_id: UUID = since(10, default=NO_TOPIC_ID)
    partitions: list[OffsetFetchPartition]
