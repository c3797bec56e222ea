"""PushTelemetry (72): a client's metrics, as OTLP (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Bytes, Int8, Int16, Int32, Message, Request


class PushTelemetryRequest(
    Request["PushTelemetryResponse"], key=72, versions=(0, 0), flexible_from=0
):
    client_instance_id: UUID
    subscription_id: Int32
    # Is this the last push?
    terminating: bool
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
