"""DeleteShareGroupState (86): a node asks the share coordinator to forget share partitions."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Message, Request


class DeleteShareGroupStateRequest(
    Request["DeleteShareGroupStateResponse"], key=86, versions=(0, 0), flexible_from=0
):
    group_id: str
    topics: list[DeleteStateTopic]


class DeleteStateTopic(Message):
    topic_id: UUID
    partitions: list[DeleteStatePartition]


class DeleteStatePartition(Message):
    partition: Int32


class DeleteShareGroupStateResponse(Message):
    results: list[DeleteStateResult]


class DeleteStateResult(Message):
    topic_id: UUID
    partitions: list[DeleteStatePartitionResult]


class DeleteStatePartitionResult(Message):
    partition: Int32
    error_code: Int16
    error_message: str | None = None
