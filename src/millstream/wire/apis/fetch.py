"""Fetch (1): read batches of records, by consumers and by followers."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.apis.metadata import LeaderIdAndEpoch, NodeEndpoint
from millstream.wire.message import Bytes, Int8, Int16, Int32, Int64, Message, Request, since

_INT32_MAX: Final = 0x7FFFFFFF
_INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF


class FetchReplicaState(Message):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchRequest(Request["FetchResponse"], key=1, versions=(4, 18), flexible_from=12):
    cluster_id: str | None = since(12, tag=0, default=None)
    replica_id: Int32 = since(0, until=14, default=-1)
    replica_state: FetchReplicaState = since(15, tag=1, default=FetchReplicaState())
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = since(3, default=_INT32_MAX)
    isolation_level: Int8 = since(4, default=0)
    session_id: Int32 = since(7, default=0)
    session_epoch: Int32 = since(7, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[FetchForgottenTopic] = since(7, default=[])
    rack_id: str = since(11, default="")


class FetchTopic(Message):
    topic: str = since(0, until=12, default="")
    topic_id: UUID = since(13, default=NO_TOPIC_ID)
    partitions: list[FetchPartition]


class FetchPartition(Message):
    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    partition_max_bytes: Int32
    replica_directory_id: UUID = since(17, tag=0, default=NO_TOPIC_ID)
    high_watermark: Int64 = since(18, tag=1, default=_INT64_MAX)


class FetchForgottenTopic(Message):
    topic: str = since(7, until=12, default="")
    topic_id: UUID = since(13, default=NO_TOPIC_ID)
    partitions: list[Int32]


class FetchResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = since(7, default=0)
    session_id: Int32 = since(7, default=0)
    responses: list[FetchTopicResponse]
    node_endpoints: list[NodeEndpoint] = since(16, tag=0, default=[])


class FetchTopicResponse(Message):
    topic: str = since(0, until=12, default="")
    topic_id: UUID = since(13, default=NO_TOPIC_ID)
    partitions: list[FetchPartitionResponse]


class FetchEpochEndOffset(Message):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class FetchSnapshotId(Message):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class FetchPartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = since(4, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    diverging_epoch: FetchEpochEndOffset = since(12, tag=0, default=FetchEpochEndOffset())
    current_leader: LeaderIdAndEpoch = since(12, tag=1, default=LeaderIdAndEpoch())
    snapshot_id: FetchSnapshotId = since(12, tag=2, default=FetchSnapshotId())
    aborted_transactions: list[FetchAbortedTransaction] | None = since(4)
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Bytes | None


class FetchAbortedTransaction(Message):
    producer_id: Int64
    first_offset: Int64
