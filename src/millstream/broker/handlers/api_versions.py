"""ApiVersions (18), versions 0-4: what this node supports. Most clients send it first."""

import re

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.broker.requests.routes import listed_versions
from millstream.errors import KafkaCode
from millstream.wire.apis.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)
from millstream.wire.vendor import CLIENT_SOFTWARE_NAME

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


# Older clients fail on a feature whose lowest level is 0.
_LEVEL_ZERO_FROM = 4


def handle(node: NodeState, request: Request, body: ApiVersionsRequest) -> ApiVersionsResponse:
    code = KafkaCode.NONE
    # Otherwise all clients would ask for subscriptions, for nothing; librdkafka logs a line, too.
    with_telemetry = bool(node.image.client_metrics)
    with_ours = False
    if request.version >= 3:
        names = (body.client_software_name, body.client_software_version)
        if all(_SOFTWARE.fullmatch(name) for name in names):
            request.connection.client_software = " ".join(names)
        else:
            code = KafkaCode.INVALID_REQUEST
        if names[0] == CLIENT_SOFTWARE_NAME:
            # Other clients never see keys that Kafka does not have.
            with_ours = True
    supported, finalized = features()
    if request.version < _LEVEL_ZERO_FROM:
        supported = [feature for feature in supported if feature.min_version > 0]
    return ApiVersionsResponse(
        error_code=code,
        api_keys=listed_versions(with_ours=with_ours, with_telemetry=with_telemetry),
        supported_features=supported,
        finalized_features_epoch=0,
        finalized_features=finalized,
    )


def features() -> tuple[list[SupportedFeature], list[FinalizedFeature]]:
    """What is supported; the highest level of each is finalized."""
    return (
        [
            SupportedFeature(name=name, min_version=lowest, max_version=highest)
            for name, lowest, highest in FEATURES
        ],
        [
            FinalizedFeature(name=name, max_version_level=highest, min_version_level=highest)
            for name, _, highest in FEATURES
        ],
    )


# Name, lowest and highest supported level; the highest is finalized. Clients use the consumer
# protocol (KIP-848), share groups (KIP-932), streams groups (KIP-1071) and an epoch per
# transaction (KIP-890) only if they are finalized.
FEATURES = (
    ("group.version", 1, 1),
    ("share.version", 0, 1),
    ("streams.version", 0, 1),
    ("transaction.version", 0, 2),
)
