"""DescribeProducers (61): the producers of a partition, with open transactions."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request


class DescribeProducersRequest(
    Request["DescribeProducersResponse"], key=61, versions=(0, 0), flexible_from=0
):
    topics: list[DescribeProducersTopic]


class DescribeProducersTopic(Message):
    name: str
    partition_indexes: list[Int32]


class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResponse]


class DescribeProducersTopicResponse(Message):
    name: str
    partitions: list[DescribeProducersPartition]


class DescribeProducersPartition(Message):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    active_producers: list[ActiveProducer]


class ActiveProducer(Message):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1
