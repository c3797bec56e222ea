"""WriteShareGroupState (85): the leader of a partition stores what became of its records."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int8, Int16, Int32, Int64, Message, Request, since


class WriteShareGroupStateRequest(
    Request["WriteShareGroupStateResponse"], key=85, versions=(0, 1), flexible_from=0
):
    group_id: str
    topics: list[WriteStateTopic]


class WriteStateTopic(Message):
    topic_id: UUID
    partitions: list[WriteStatePartition]


class WriteStatePartition(Message):
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1)
    state_batches: list[WriteStateBatch]


class WriteStateBatch(Message):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class WriteShareGroupStateResponse(Message):
    results: list[WriteStateResult]


class WriteStateResult(Message):
    topic_id: UUID
    partitions: list[WriteStatePartitionResult]


class WriteStatePartitionResult(Message):
    partition: Int32
    error_code: Int16
    error_message: str | None = None
