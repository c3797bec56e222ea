"""ListConfigResources (74): what has options of its own."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request, since


class ListConfigResourcesRequest(
    Request["ListConfigResourcesResponse"], key=74, versions=(0, 1), flexible_from=0
):
    resource_types: list[Int8] = since(1, default=[])


class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: list[ListedConfigResource]


class ListedConfigResource(Message):
    resource_name: str
    resource_type: Int8 = since(1, default=16)
