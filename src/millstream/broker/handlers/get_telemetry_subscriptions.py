"""GetTelemetrySubscriptions (71), version 0: which metrics a client should push, and how often."""

import os

from millstream.broker.node.state import NodeState
from millstream.broker.requests.client_telemetry import ACCEPTED_CODECS, ClientTelemetry
from millstream.broker.requests.request import Request
from millstream.cluster.metadata import new_id
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.wire.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    node: NodeState,
    telemetry: ClientTelemetry,
    request: Request,
    body: GetTelemetrySubscriptionsRequest,
) -> GetTelemetrySubscriptionsResponse:
    instance_id, now_ms = body.client_instance_id, node.now_ms()
    if not instance_id.int:
        instance_id = new_id(os.urandom)
    telemetry.subscribe(node.config, node.image.client_metrics, now_ms)
    try:
        wanted = telemetry.ask(instance_id, request.connection, now_ms)
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(
            error_code=error.code, client_instance_id=NO_TOPIC_ID
        )
    return GetTelemetrySubscriptionsResponse(
        error_code=KafkaCode.NONE,
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=node.config.int("telemetry.max.bytes"),
        # Totals: only the newest push is kept, and Prometheus reads totals.
        delta_temporality=False,
        requested_metrics=list(wanted.metrics),
    )
