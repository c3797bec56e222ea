"""UnregisterBroker (64): forget a node that will not come back."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request


class UnregisterBrokerRequest(
    Request["UnregisterBrokerResponse"], key=64, versions=(0, 0), flexible_from=0
):
    broker_id: Int32


class UnregisterBrokerResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
