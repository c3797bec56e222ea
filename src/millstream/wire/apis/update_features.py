"""UpdateFeatures (57): finalize another level of a feature."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request, since


class UpdateFeaturesRequest(
    Request["UpdateFeaturesResponse"], key=57, versions=(0, 2), flexible_from=0
):
    timeout_ms: Int32 = 60_000
    feature_updates: list[FeatureUpdate]
    validate_only: bool = since(1, default=False)


class FeatureUpdate(Message):
    feature: str
    max_version_level: Int16
    allow_downgrade: bool = since(0, until=0, default=False)
    upgrade_type: Int8 = since(1, default=1)


class UpdateFeaturesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    results: list[UpdatedFeature] = since(0, until=1, default=[])


class UpdatedFeature(Message):
    feature: str
    error_code: Int16
    error_message: str | None
