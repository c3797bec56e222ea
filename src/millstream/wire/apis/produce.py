"""Produce (0): append batches of records to partitions."""

from __future__ import annotations

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.apis.metadata import LeaderIdAndEpoch, NodeEndpoint
from millstream.wire.message import Bytes, Int16, Int32, Int64, Message, Request, since


# Listed from 0 on: librdkafka before 2.11.1 turns compression off unless it is, although
# no client sends it.
class ProduceRequest(
    Request["ProduceResponse"], key=0, versions=(3, 13), flexible_from=9, listed=(0, 13)
):
    transactional_id: str | None = since(3, default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[ProduceTopicData]


class ProduceTopicData(Message):
    name: str = since(0, until=12, default="")
    topic_id: UUID = since(13, default=NO_TOPIC_ID)
    partition_data: list[ProducePartitionData]


class ProducePartitionData(Message):
    index: Int32
    records: Bytes | None


class ProduceResponse(Message):
    responses: list[ProduceTopicResponse]
    throttle_time_ms: Int32 = since(1, default=0)
    node_endpoints: list[NodeEndpoint] = since(10, tag=0, default=[])


class ProduceTopicResponse(Message):
    name: str = since(0, until=12, default="")
    topic_id: UUID = since(13, default=NO_TOPIC_ID)
    partition_responses: list[ProducePartitionResponse]


class ProducePartitionResponse(Message):
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = since(2, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    record_errors: list[ProduceRecordError] = since(8, default=[])
    error_message: str | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch = since(10, tag=0, default=LeaderIdAndEpoch())


class ProduceRecordError(Message):
    batch_index: Int32
    batch_index_error_message: str | None = None
