"""ReadShareGroupState (84): the leader of a partition reads the state of a share partition."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int8, Int16, Int32, Int64, Message, Request


class ReadShareGroupStateRequest(
    Request["ReadShareGroupStateResponse"], key=84, versions=(0, 0), flexible_from=0
):
    group_id: str
    topics: list[ReadStateTopic]


class ReadStateTopic(Message):
    topic_id: UUID
    partitions: list[ReadStatePartition]


class ReadStatePartition(Message):
    partition: Int32
    leader_epoch: Int32


class ReadShareGroupStateResponse(Message):
    results: list[ReadStateResult]


class ReadStateResult(Message):
    topic_id: UUID
    partitions: list[ReadStatePartitionResult]


class ReadStatePartitionResult(Message):
    partition: Int32
    error_code: Int16
    error_message: str | None = None
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[ReadStateBatch]


class ReadStateBatch(Message):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16
