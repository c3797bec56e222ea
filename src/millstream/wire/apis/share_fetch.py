"""ShareFetch (78): acquire records of a share group, and acknowledge earlier ones (KIP-932).

Version 2 brought the acquire mode (KIP-1206) and the renewal of locks (KIP-1222).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from millstream.wire.apis.metadata import LeaderIdAndEpoch, NodeEndpoint
from millstream.wire.message import Bytes, Int8, Int16, Int32, Int64, Message, Request, since

_INT32_MAX: Final = 0x7FFFFFFF


class ShareFetchRequest(Request["ShareFetchResponse"], key=78, versions=(1, 2), flexible_from=0):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = _INT32_MAX
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = since(2, default=0)
    is_renew_ack: bool = since(2, default=False)
    topics: list[ShareFetchTopic]
    forgotten_topics_data: list[ShareForgottenTopic]


class ShareFetchTopic(Message):
    topic_id: UUID
    partitions: list[ShareFetchPartition]


class ShareFetchPartition(Message):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Message):
    """One type for all records of the batch, or one type for each."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


class ShareForgottenTopic(Message):
    topic_id: UUID
    partitions: list[Int32]


class ShareFetchResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareFetchTopicResponse(Message):
    topic_id: UUID
    partitions: list[ShareFetchPartitionResponse]


class ShareFetchPartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    acknowledge_error_code: Int16
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch
    records: Bytes
    acquired_records: list[AcquiredRecords]


class AcquiredRecords(Message):
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16
