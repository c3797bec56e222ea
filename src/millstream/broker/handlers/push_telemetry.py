"""PushTelemetry (72), version 0: keeps the newest values of a client's metrics."""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from millstream.broker.node.state import NodeState
from millstream.broker.requests.client_telemetry import (
    ClientInstance,
    ClientTelemetry,
    Push,
    read_payload,
)
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode, KafkaError
from millstream.model import Codec
from millstream.wire.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(
    node: NodeState,
    telemetry: ClientTelemetry,
    turns: Turns,
    request: Request,
    body: PushTelemetryRequest,
) -> PushTelemetryResponse | Coroutine[Any, Any, PushTelemetryResponse]:
    now_ms = node.now_ms()
    telemetry.subscribe(node.config, node.image.client_metrics, now_ms)
    push = Push(
        subscription_id=body.subscription_id,
        is_terminating=body.terminating,
        compression_type=body.compression_type,
        size_bytes=len(body.metrics),
        size_bytes_max=node.config.int("telemetry.max.bytes"),
    )
    try:
        client = telemetry.begin_push(body.client_instance_id, request.connection, push, now_ms)
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    # What nobody asked for is not read.
    if not body.metrics or not client.wanted.metrics:
        return PushTelemetryResponse(error_code=KafkaCode.NONE)
    return _keep(node, telemetry, turns, request, client, body, push.size_bytes_max)


async def _keep(
    node: NodeState,
    telemetry: ClientTelemetry,
    turns: Turns,
    request: Request,
    client: ClientInstance,
    body: PushTelemetryRequest,
    limit_bytes: int,
) -> PushTelemetryResponse:
    """Reads the metrics in a thread: a hundred of them take some milliseconds."""
    read = partial(
        read_payload,
        body.metrics,
        Codec(body.compression_type),
        limit_bytes=limit_bytes,
        each=turns.pace(request),
    )
    try:
        metrics = await turns.in_thread(read)
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    telemetry.end_push(client, metrics, node.now_ms())
    return PushTelemetryResponse(error_code=KafkaCode.NONE)
