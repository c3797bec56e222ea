"""IncrementalAlterConfigs (44): set, delete, append to and subtract from settings."""

from __future__ import annotations

from millstream.wire.apis.alter_configs import AlterConfigsResult
from millstream.wire.message import Int8, Int32, Message, Request


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], key=44, versions=(0, 1), flexible_from=1
):
    resources: list[IncrementalAlterConfigsResource]
    validate_only: bool


class IncrementalAlterConfigsResource(Message):
    resource_type: Int8
    resource_name: str
    configs: list[IncrementallyAlterableConfig]


class IncrementallyAlterableConfig(Message):
    name: str
    config_operation: Int8
    value: str | None


class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResult]
