"""RenewDelegationToken (39): lets a token live longer."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Int64, Message, Request


class RenewDelegationTokenRequest(
    Request["RenewDelegationTokenResponse"], key=39, versions=(1, 2), flexible_from=2
):
    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Message):
    error_code: Int16
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
