"""ExpireDelegationToken (40): ends a token, now or later."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Int64, Message, Request


class ExpireDelegationTokenRequest(
    Request["ExpireDelegationTokenResponse"], key=40, versions=(1, 2), flexible_from=2
):
    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Message):
    error_code: Int16
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
