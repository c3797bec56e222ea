"""ReadShareGroupStateSummary (87): where share partitions start, without their batches."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class ReadShareGroupStateSummaryRequest(
    Request["ReadShareGroupStateSummaryResponse"], key=87, versions=(0, 1), flexible_from=0
):
    group_id: str
    topics: list[ReadSummaryTopic]


class ReadSummaryTopic(Message):
    topic_id: UUID
    partitions: list[ReadSummaryPartition]


class ReadSummaryPartition(Message):
    partition: Int32
    leader_epoch: Int32


class ReadShareGroupStateSummaryResponse(Message):
    results: list[ReadSummaryResult]


class ReadSummaryResult(Message):
    topic_id: UUID
    partitions: list[ReadSummaryPartitionResult]


class ReadSummaryPartitionResult(Message):
    partition: Int32
    error_code: Int16
    error_message: str | None = None
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1)
