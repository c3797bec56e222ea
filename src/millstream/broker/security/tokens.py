"""Delegation tokens on this node: who may have one, and logins by one.

A token's login is SCRAM with its id as the user and its HMAC, in base64, as the password.
"""

import asyncio
import base64
import logging
import os
import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.security.mechanisms import TokenCredential
from millstream.broker.security.slow_checks import SlowChecks
from millstream.cluster.znodes import encode_uuid
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.security.delegation import (
    DelegationToken,
    Lifetimes,
    expired,
    new_token,
    renewed,
    token_hmac,
)
from millstream.security.sasl.outcome import Identity
from millstream.security.sasl.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    new_credential,
)

log = logging.getLogger(__name__)

_USER: Final = "User:"
# Of one requester, counting those that have expired and are not removed yet. Each is a write to the
# coordination store, and every request for one looks through all of them.
_TOKENS_MAX: Final = 1_000
_RENEWERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a token ends, or has ended."""

    token_id: str
    at_ms: int


class Tokens:
    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._slow_checks = SlowChecks()
        # By mechanism and token id; emptied when tokens change.
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        # By HMAC: the ids of those that have been looked for. They are of one secret.
        self._ids: dict[bytes, str] = {}
        self._secret_of_ids: str | None = None
        self._removing: asyncio.Task[None] | None = None
        node.image.delegation_tokens.listeners.append(self._credentials.clear)

    @property
    def _secret(self) -> str | None:
        config = self._node.config
        return config.optional_string("delegation.token.secret.key") or config.optional_string(
            "delegation.token.master.key"
        )

    @property
    def _tokens(self) -> Mapping[str, DelegationToken]:
        return self._node.image.delegation_tokens.tokens

    # -- requests, each raises KafkaError ---------------------------------------------

    async def create(
        self, owner: str, requester: str, renewers: Collection[str], max_lifetime_ms: int
    ) -> DelegationToken:
        self._enabled_secret()
        self._check_room(requester, renewers)
        token = new_token(
            encode_uuid(uuid.uuid4()),
            owner,
            requester,
            renewers,
            self._lifetimes,
            max_lifetime_ms=max_lifetime_ms,
            now_ms=self._node.clock.now_ms(),
        )
        await self._node.metadata.change_token(token.token_id, lambda _: token)
        return token

    def _check_room(self, requester: str, renewers: Collection[str]) -> None:
        if len(renewers) > _RENEWERS_MAX:
            raise KafkaError(
                KafkaCode.INVALID_REQUEST, f"a token has {_RENEWERS_MAX} renewers at most"
            )
        if sum(token.requester == requester for token in self._tokens.values()) >= _TOKENS_MAX:
            raise KafkaError(
                KafkaCode.THROTTLING_QUOTA_EXCEEDED,
                f"{requester} has requested {_TOKENS_MAX} tokens; one of them must end first",
            )

    async def renew(self, proof: bytes, principal: str, period_ms: int) -> Expiry:
        token_id, now_ms = self._find(proof).token_id, self._node.clock.now_ms()
        changed = await self._node.metadata.change_token(
            token_id,
            lambda token: renewed(
                _present(token), principal, self._lifetimes, period_ms=period_ms, now_ms=now_ms
            ),
        )
        return Expiry(token_id, _present(changed).expires_at_ms)

    async def expire(self, proof: bytes, principal: str, period_ms: int) -> Expiry:
        token_id, now_ms = self._find(proof).token_id, self._node.clock.now_ms()
        changed = await self._node.metadata.change_token(
            token_id,
            lambda token: expired(_present(token), principal, period_ms=period_ms, now_ms=now_ms),
        )
        return Expiry(token_id, now_ms if changed is None else changed.expires_at_ms)

    def present(self) -> list[DelegationToken]:
        """All that have not expired."""
        self._enabled_secret()
        now_ms = self._node.clock.now_ms()
        return [token for token in self._tokens.values() if not token.is_expired(now_ms)]

    def hmac_of(self, token: DelegationToken) -> bytes:
        return token_hmac(self._enabled_secret(), token.token_id)

    def _enabled_secret(self) -> str:
        secret = self._secret
        if secret is None:
            raise KafkaError(
                KafkaCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set"
            )
        return secret

    def _find(self, proof: bytes) -> DelegationToken:
        token = self._tokens.get(self._ids_by_hmac(self._enabled_secret()).get(proof, ""))
        if token is None:
            raise KafkaError(KafkaCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
        return token

    def _ids_by_hmac(self, secret: str) -> Mapping[bytes, str]:
        """Computed for each token once: a request that names none must not cost as many HMACs."""
        if secret != self._secret_of_ids:
            self._ids, self._secret_of_ids = {}, secret
        known = set(self._ids.values())
        if known != self._tokens.keys():
            self._ids = {
                hmac: token_id for hmac, token_id in self._ids.items() if token_id in self._tokens
            }
            for token_id in self._tokens.keys() - known:
                self._ids[token_hmac(secret, token_id)] = token_id
        return self._ids

    @property
    def _lifetimes(self) -> Lifetimes:
        config = self._node.config
        return Lifetimes(
            expiry_ms=config.int("delegation.token.expiry.time.ms"),
            max_ms=config.int("delegation.token.max.lifetime.ms"),
        )

    # -- logins -----------------------------------------------------------------------

    async def find(self, mechanism: str, token_id: str) -> TokenCredential | None:
        secret, token = self._secret, self._tokens.get(token_id)
        if secret is None or token is None or not self.is_current(token_id):
            return None
        key = (mechanism, token_id)
        if key not in self._credentials:
            password = base64.b64encode(token_hmac(secret, token_id)).decode()
            salt = os.urandom(SALT_BYTES)
            make = partial(
                new_credential, mechanism, password, salt=salt, iterations=ITERATIONS_MIN
            )
            self._credentials[key] = await self._slow_checks.run(make)
        owner = Identity(token.owner.removeprefix(_USER), token.expires_at_ms)
        return TokenCredential(self._credentials[key], owner)

    def is_current(self, token_id: str) -> bool:
        token = self._tokens.get(token_id)
        return token is not None and not token.is_expired(self._node.clock.now_ms())

    # -- tokens that nobody can use any more ------------------------------------------

    def start(self) -> None:
        if self._secret is not None:
            self._removing = asyncio.get_running_loop().create_task(self._remove_expired())

    async def stop(self) -> None:
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.gather(self._removing, return_exceptions=True)
        self._slow_checks.stop()

    async def _remove_expired(self) -> None:
        interval_ms = self._node.config.int("delegation.token.expiry.check.interval.ms")
        while True:
            await asyncio.sleep(interval_ms / 1000)
            if self._node.cluster.controller_id != self._node.node_id:
                continue
            now_ms = self._node.clock.now_ms()
            for token_id, token in self._tokens.items():
                if token.is_expired(now_ms):
                    try:
                        await self._node.metadata.change_token(token_id, lambda _: None)
                    except KafkaError as error:
                        log.warning("token %s was not removed: %s", token_id, error.message)


def _present(token: DelegationToken | None) -> DelegationToken:
    if token is None:
        raise KafkaError(KafkaCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
    return token
