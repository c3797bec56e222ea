"""Delegation tokens: a user gives a program a login of its own, for a time (KIP-48).

A token's HMAC is its password. Nodes compute it from the token's id and a secret that only they
have, so it is stored nowhere. A token expires unless its owner, the user who requested it or one
of its renewers renews it in time, and at last when its longest life is over.
"""

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# The last time that a response can hold.
_NEVER_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Principals are texts like `User:alice`. A token counts until `expires_at_ms`, which can be
    renewed up to `max_at_ms`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at_ms: int
    max_at_ms: int
    expires_at_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return now_ms >= min(self.expires_at_ms, self.max_at_ms)

    def may_be_renewed_by(self, principal: str) -> bool:
        return principal in (self.owner, self.requester, *self.renewers)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Of a token until it is renewed, and at most."""

    expiry_ms: int
    max_ms: int


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), hashlib.sha512)


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: Collection[str],
    lifetimes: Lifetimes,
    *,
    max_lifetime_ms: int,
    now_ms: int,
) -> DelegationToken:
    """`max_lifetime_ms` is what the client asked for; 0 and less leave it to the node."""
    longest_ms = lifetimes.max_ms
    if max_lifetime_ms > 0:
        longest_ms = min(longest_ms, max_lifetime_ms)
    max_at_ms = min(now_ms + longest_ms, _NEVER_MS)
    return DelegationToken(
        token_id,
        owner,
        requester,
        renewers=tuple(renewers),
        issued_at_ms=now_ms,
        max_at_ms=max_at_ms,
        expires_at_ms=min(max_at_ms, now_ms + lifetimes.expiry_ms),
    )


def renewed(
    token: DelegationToken, principal: str, lifetimes: Lifetimes, *, period_ms: int, now_ms: int
) -> DelegationToken:
    """Raises KafkaError. A negative period is the node's usual one."""
    _check_may_change(token, principal)
    _check_not_expired(token, now_ms)
    period_ms = lifetimes.expiry_ms if period_ms < 0 else period_ms
    return replace(token, expires_at_ms=min(token.max_at_ms, now_ms + period_ms))


def expired(
    token: DelegationToken, principal: str, *, period_ms: int, now_ms: int
) -> DelegationToken | None:
    """None if the token ends at once. Raises KafkaError."""
    _check_may_change(token, principal)
    if period_ms < 0:
        return None
    _check_not_expired(token, now_ms)
    return replace(token, expires_at_ms=min(token.max_at_ms, now_ms + period_ms))


def _check_may_change(token: DelegationToken, principal: str) -> None:
    if not token.may_be_renewed_by(principal):
        raise KafkaError(
            KafkaCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            "not its owner, requester or a renewer",
        )


def _check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(KafkaCode.DELEGATION_TOKEN_EXPIRED, "the token has expired")
