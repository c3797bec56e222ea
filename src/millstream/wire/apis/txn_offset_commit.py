"""TxnOffsetCommit (28): offsets that are committed with a transaction."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class TxnOffsetCommitRequest(
    Request["TxnOffsetCommitResponse"], key=28, versions=(0, 5), flexible_from=3
):
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)
    member_id: str = since(3, default="")
    group_instance_id: str | None = since(3, default=None)
    topics: list[TxnOffsetCommitTopic]


class TxnOffsetCommitTopic(Message):
    name: str
    partitions: list[TxnOffsetCommitPartition]


class TxnOffsetCommitPartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1)
    committed_metadata: str | None


class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitTopicResponse]


class TxnOffsetCommitTopicResponse(Message):
    name: str
    partitions: list[TxnOffsetCommitPartitionResponse]


class TxnOffsetCommitPartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
