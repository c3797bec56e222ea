"""GetTelemetrySubscriptions (71): which of its metrics a client should push (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import Int8, Int16, Int32, Message, Request, since


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], key=71, versions=(0, 0), flexible_from=0
):
    # All zeros in a client's first request.
    client_instance_id: UUID


class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    client_instance_id: UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = since(0, default=[])
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = since(0, default=0)
    delta_temporality: bool = False
    requested_metrics: list[str] = since(0, default=[])
