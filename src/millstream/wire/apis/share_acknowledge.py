"""ShareAcknowledge (79): acknowledge records of a share group without fetching others.

Version 2 brought the renewal of locks (KIP-1222).
"""

from __future__ import annotations

from uuid import UUID

from millstream.wire.apis.metadata import LeaderIdAndEpoch, NodeEndpoint
from millstream.wire.apis.share_fetch import AcknowledgementBatch
from millstream.wire.message import Int16, Int32, Message, Request, since


class ShareAcknowledgeRequest(
    Request["ShareAcknowledgeResponse"], key=79, versions=(1, 2), flexible_from=0
):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    is_renew_ack: bool = since(2, default=False)
    topics: list[ShareAcknowledgeTopic]


class ShareAcknowledgeTopic(Message):
    topic_id: UUID
    partitions: list[ShareAcknowledgePartition]


class ShareAcknowledgePartition(Message):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


class ShareAcknowledgeResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = since(2, default=0)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareAcknowledgeTopicResponse(Message):
    topic_id: UUID
    partitions: list[ShareAcknowledgePartitionResponse]


class ShareAcknowledgePartitionResponse(Message):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch
