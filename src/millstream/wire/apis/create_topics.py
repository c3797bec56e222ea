"""CreateTopics (19)."""

from __future__ import annotations

from uuid import UUID

from millstream.model import NO_TOPIC_ID
from millstream.wire.message import Int8, Int16, Int32, Message, Request, since


class CreateTopicsRequest(
    Request["CreateTopicsResponse"], key=19, versions=(2, 7), flexible_from=5
):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: bool = False


class CreatableTopic(Message):
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableAssignment]
    configs: list[CreatableConfig]


class CreatableAssignment(Message):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableConfig(Message):
    name: str
    value: str | None


class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[CreatedTopic]


class CreatedTopic(Message):
    name: str
    topic_id: UUID = since(7, default=NO_TOPIC_ID)
    error_code: Int16
    error_message: str | None
    topic_config_error_code: Int16 = since(5, tag=0, default=0)
    num_partitions: Int32 = since(5, default=-1)
    replication_factor: Int16 = since(5, default=-1)
    configs: list[CreatedConfig] | None = since(5)


class CreatedConfig(Message):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool
