"""ApiVersions (18): what a node supports. Most clients send it first."""

from __future__ import annotations

from millstream.wire.message import (
    NEVER_FLEXIBLE,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    since,
)


# Always answered with the old header: a client that does not know our versions yet must be
# able to read it (KIP-511).
class ApiVersionsRequest(
    Request["ApiVersionsResponse"],
    key=18,
    versions=(0, 4),
    flexible_from=3,
    response_tags_from=NEVER_FLEXIBLE,
):
    client_software_name: str = since(3, default="")
    client_software_version: str = since(3, default="")


class ApiVersionsResponse(Message):
    error_code: Int16
    api_keys: list[ApiVersionsKey]
    throttle_time_ms: Int32 = since(1, default=0)
    supported_features: list[SupportedFeature] = since(3, tag=0, default=[])
    finalized_features_epoch: Int64 = since(3, tag=1, default=-1)
    finalized_features: list[FinalizedFeature] = since(3, tag=2, default=[])
    zk_migration_ready: bool = since(3, tag=3, default=False)


class ApiVersionsKey(Message):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeature(Message):
    name: str
    min_version: Int16
    max_version: Int16


class FinalizedFeature(Message):
    name: str
    max_version_level: Int16
    min_version_level: Int16
