"""DeleteRecords (21): move the log start offset."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request


class DeleteRecordsRequest(
    Request["DeleteRecordsResponse"], key=21, versions=(0, 2), flexible_from=2
):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsTopic(Message):
    name: str
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsPartition(Message):
    partition_index: Int32
    offset: Int64


class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResponse]


class DeleteRecordsTopicResponse(Message):
    name: str
    partitions: list[DeleteRecordsPartitionResponse]


class DeleteRecordsPartitionResponse(Message):
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16
