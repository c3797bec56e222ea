"""DeleteTopics (20): by name, from 6 on also by id."""

from __future__ import annotations

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.message import Int16, Int32, Message, Request, since


class DeleteTopicsRequest(
    Request["DeleteTopicsResponse"], key=20, versions=(1, 6), flexible_from=4
):
    topics: list[DeletableTopic] = since(6, default=[])
    topic_names: list[str] = since(0, until=5, default=[])
    timeout_ms: Int32


class DeletableTopic(Message):
    name: str | None = None
    topic_id: UUID


class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[DeletedTopic]


class DeletedTopic(Message):
    name: str | None = since(0, nullable_since=6)
    topic_id: UUID = since(6, default=NO_TOPIC_ID)
    error_code: Int16
    error_message: str | None = since(5, default=None)
