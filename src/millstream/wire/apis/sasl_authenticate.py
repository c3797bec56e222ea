"""SaslAuthenticate (36): one step of a client's login."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int64, Message, Request, since


class SaslAuthenticateRequest(
    Request["SaslAuthenticateResponse"], key=36, versions=(0, 2), flexible_from=2
):
    auth_bytes: Bytes


class SaslAuthenticateResponse(Message):
    error_code: Int16
    error_message: str | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = since(1, default=0)
