"""DeleteShareGroupOffsets (92): a share group without members forgets topics."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int16, Int32, Message, Request


class DeleteShareGroupOffsetsRequest(
    Request["DeleteShareGroupOffsetsResponse"], key=92, versions=(0, 0), flexible_from=0
):
    group_id: str
    topics: list[ShareOffsetsDeletedTopic]


class ShareOffsetsDeletedTopic(Message):
    topic_name: str


class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    responses: list[ShareOffsetsDeletedTopicResponse]


class ShareOffsetsDeletedTopicResponse(Message):
    topic_name: str
    topic_id: UUID
    error_code: Int16
    error_message: str | None = None
