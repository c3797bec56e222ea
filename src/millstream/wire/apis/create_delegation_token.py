"""CreateDelegationToken (38): a login for a program that acts for its user."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Int64, Message, Request, since


class CreateDelegationTokenRequest(
    Request["CreateDelegationTokenResponse"], key=38, versions=(1, 3), flexible_from=2
):
    owner_principal_type: str | None = since(3, default=None)
    owner_principal_name: str | None = since(3, default=None)
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreatableRenewers(Message):
    principal_type: str
    principal_name: str


class CreateDelegationTokenResponse(Message):
    error_code: Int16
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = since(3, default="")
    token_requester_principal_name: str = since(3, default="")
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: str = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
