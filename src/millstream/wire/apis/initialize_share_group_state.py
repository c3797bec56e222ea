"""InitializeShareGroupState (83): a node asks the share coordinator to begin a share partition."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Int64, Message, Request


class InitializeShareGroupStateRequest(
    Request["InitializeShareGroupStateResponse"], key=83, versions=(0, 0), flexible_from=0
):
    group_id: str
    topics: list[InitializeStateTopic]


class InitializeStateTopic(Message):
    topic_id: UUID
    partitions: list[InitializeStatePartition]


class InitializeStatePartition(Message):
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


class InitializeShareGroupStateResponse(Message):
    results: list[InitializeStateResult]


class InitializeStateResult(Message):
    topic_id: UUID
    partitions: list[InitializeStatePartitionResult]


class InitializeStatePartitionResult(Message):
    partition: Int32
    error_code: Int16
    error_message: str | None = None
