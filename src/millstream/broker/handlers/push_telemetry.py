"""PushTelemetry (72), version 0: keeps the newest values of a client's metrics."""

from collections.abc import Callable, Coroutine
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
from millstream.wire.otlp import ReadMetrics

# Each connection has one push in memory: in line for the thread, hundreds would fill it.
HOLDS_NEXT_REQUEST = True


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
    read = partial(
        read_payload,
        # A copy, because the frame may be larger than what is allowed of metrics.
        bytes(body.metrics),
        Codec(body.compression_type),
        limit_bytes=push.size_bytes_max,
        each=turns.pace(request),
    )
    return _keep(node, telemetry, turns, request, client, read, push.size_bytes)


async def _keep(
    node: NodeState,
    telemetry: ClientTelemetry,
    turns: Turns,
    request: Request,
    client: ClientInstance,
    read: Callable[[], ReadMetrics],
    size_bytes: int,
) -> PushTelemetryResponse:
    """`read` goes to a thread: a hundred metrics take some milliseconds. What it reads has so many
    bytes, which count as received until then."""
    release = request.connection.hold_memory(size_bytes)
    try:
        metrics = await turns.in_thread_in_line(request, read)
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    finally:
        release()
    telemetry.end_push(client, metrics, node.now_ms())
    return PushTelemetryResponse(error_code=KafkaCode.NONE)
