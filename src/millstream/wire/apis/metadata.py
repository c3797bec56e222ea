"""Metadata (3): the nodes, the topics, and the leaders of their partitions."""

from __future__ import annotations

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.message import NO_OPERATIONS, Int16, Int32, Message, Request, since


class MetadataRequest(Request["MetadataResponse"], key=3, versions=(0, 13), flexible_from=9):
    topics: list[MetadataRequestTopic] | None = since(0, nullable_since=1)
    allow_auto_topic_creation: bool = since(4, default=True)
    include_cluster_authorized_operations: bool = since(8, until=10, default=False)
    include_topic_authorized_operations: bool = since(8, default=False)


class MetadataRequestTopic(Message):
    topic_id: UUID = since(10, default=NO_TOPIC_ID)
    name: str | None = since(0, nullable_since=10)


class MetadataResponse(Message):
    throttle_time_ms: Int32 = since(3, default=0)
    brokers: list[MetadataBroker]
    cluster_id: str | None = since(2, default=None)
    controller_id: Int32 = since(1, default=-1)
    topics: list[MetadataTopic]
    cluster_authorized_operations: Int32 = since(8, until=10, default=NO_OPERATIONS)
    error_code: Int16 = since(13, default=0)


class MetadataBroker(Message):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = since(1, default=None)


class MetadataTopic(Message):
    error_code: Int16
    name: str | None = since(0, nullable_since=12)
    topic_id: UUID = since(10, default=NO_TOPIC_ID)
    is_internal: bool = since(1, default=False)
    partitions: list[MetadataPartition]
    topic_authorized_operations: Int32 = since(8, default=NO_OPERATIONS)


class MetadataPartition(Message):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = since(5)


# The node to use instead, in responses to Produce and Fetch (KIP-951).
class LeaderIdAndEpoch(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Message):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
