"""OffsetForLeaderEpoch (23): the end offset of a leader epoch."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class OffsetForLeaderEpochRequest(
    Request["OffsetForLeaderEpochResponse"], key=23, versions=(2, 4), flexible_from=4
):
    replica_id: Int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderTopic(Message):
    topic: str
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderPartition(Message):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResponse]


class OffsetForLeaderTopicResponse(Message):
    topic: str
    partitions: list[EpochEndOffset]


class EpochEndOffset(Message):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1
