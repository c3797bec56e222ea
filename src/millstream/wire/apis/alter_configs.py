"""AlterConfigs (33): replace all settings of a topic, node or group."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request


class AlterConfigsRequest(
    Request["AlterConfigsResponse"], key=33, versions=(0, 2), flexible_from=2
):
    resources: list[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResource(Message):
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


class AlterableConfig(Message):
    name: str
    value: str | None


class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResult]


class AlterConfigsResult(Message):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
