"""DescribeQuorum (55): the nodes among which the controller is elected."""

from __future__ import annotations

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.message import Int16, Int32, Int64, Message, Request, UInt16, since


class DescribeQuorumRequest(
    Request["DescribeQuorumResponse"], key=55, versions=(0, 2), flexible_from=0
):
    topics: list[DescribeQuorumTopic]


class DescribeQuorumTopic(Message):
    topic_name: str
    partitions: list[DescribeQuorumPartition]


class DescribeQuorumPartition(Message):
    partition_index: Int32


class DescribeQuorumResponse(Message):
    error_code: Int16
    error_message: str | None = since(2, default=None)
    topics: list[QuorumTopic]
    nodes: list[QuorumNode] = since(2, default=[])


class QuorumTopic(Message):
    topic_name: str
    partitions: list[QuorumPartition]


class QuorumPartition(Message):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = since(2, default=None)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class QuorumReplica(Message):
    replica_id: Int32
    replica_directory_id: UUID = since(2, default=NO_TOPIC_ID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = since(1, default=-1)
    last_caught_up_timestamp: Int64 = since(1, default=-1)


class QuorumNode(Message):
    node_id: Int32
    listeners: list[QuorumListener]


class QuorumListener(Message):
    name: str
    host: str
    port: UInt16
