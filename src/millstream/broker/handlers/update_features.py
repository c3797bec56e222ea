"""UpdateFeatures (57), versions 0-2: every feature is finalized at its highest level, for good."""

from typing import Final

from millstream.broker.handlers.api_versions import FEATURES
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.wire.apis.update_features import (
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from millstream.wire.message import Message

NAMES_FEW = True
ONE_ERROR_FROM: Final = 2


def handle(request: Request, body: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not body.feature_updates:
        return refused(KafkaCode.INVALID_REQUEST, "the request names no feature")
    results = [_update(update) for update in body.feature_updates]
    if request.version < ONE_ERROR_FROM:
        return UpdateFeaturesResponse(
            error_code=KafkaCode.NONE, error_message=None, results=results
        )
    for one in results:
        if one.error_code != KafkaCode.NONE:
            return refused(KafkaCode(one.error_code), one.error_message)
    return refused(KafkaCode.NONE, None)


def refuse(request: Request, body: UpdateFeaturesRequest, code: KafkaCode) -> Message:
    return refused(code, None)


def refused(code: KafkaCode, message: str | None) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=message)


def _update(update: FeatureUpdate) -> UpdatedFeature:
    code, message = KafkaCode.NONE, None
    finalized = {name: highest for name, _, highest in FEATURES}.get(update.feature)
    if finalized is None:
        code = KafkaCode.INVALID_UPDATE_VERSION
        message = f"this node does not have the feature {update.feature}"
    elif update.max_version_level != finalized:
        code = KafkaCode.INVALID_UPDATE_VERSION
        message = (
            f"{update.feature} is finalized at level {finalized}, and this node has no other;"
            f" level {update.max_version_level} is not possible"
        )
    return UpdatedFeature(feature=update.feature, error_code=code, error_message=message)
