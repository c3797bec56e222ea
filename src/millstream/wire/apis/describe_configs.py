"""DescribeConfigs (32): options with their values, and where those are set."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request, since


class DescribeConfigsRequest(
    Request["DescribeConfigsResponse"], key=32, versions=(1, 4), flexible_from=4
):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = since(3, default=False)


class DescribeConfigsResource(Message):
    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


class DescribeConfigsResult(Message):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: list[DescribedConfig]


class DescribedConfig(Message):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool
    synonyms: list[DescribedSynonym]
    config_type: Int8 = since(3, default=0)
    documentation: str | None = since(3)


class DescribedSynonym(Message):
    name: str
    value: str | None
    source: Int8
