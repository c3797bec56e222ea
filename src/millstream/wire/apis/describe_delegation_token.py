"""DescribeDelegationToken (41): the tokens that a user has, or may renew."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Int64, Message, Request, since


class DescribeDelegationTokenRequest(
    Request["DescribeDelegationTokenResponse"], key=41, versions=(1, 3), flexible_from=2
):
    # None: of every owner.
    owners: list[DescribeDelegationTokenOwner] | None


class DescribeDelegationTokenOwner(Message):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenResponse(Message):
    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = 0


class DescribedDelegationToken(Message):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = since(3, default="")
    token_requester_principal_name: str = since(3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: Bytes
    renewers: list[DescribedDelegationTokenRenewer]


class DescribedDelegationTokenRenewer(Message):
    principal_type: str
    principal_name: str
