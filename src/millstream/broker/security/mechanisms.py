"""The SASL mechanisms of a listener: conversations with a client, over what the node knows.

`millstream.security.sasl` reads the messages and compares; here are the credentials.
"""

import base64
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from millstream.broker.security.plain_users import PlainUsers
from millstream.broker.security.scram_credentials import ScramCredentials
from millstream.broker.security.slow_checks import SlowChecks
from millstream.broker.security.token_keys import TokenKeys
from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.jwt_check import InvalidToken, TokenRules, UnknownKey, check_token
from millstream.security.sasl.oauthbearer import ACKNOWLEDGED, REFUSAL, read_initial
from millstream.security.sasl.outcome import (
    INVALID_CREDENTIALS,
    AuthenticationFailed,
    Identity,
    check_authorization_id,
)
from millstream.security.sasl.plain import matches, read_plain
from millstream.security.sasl.scram import (
    ClientFirst,
    ScramCredential,
    ScramExchange,
    no_credential,
    read_client_first,
)

log = logging.getLogger(__name__)

_NONCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Login:
    """A client has proved who it is. `is_current` says whether its credential still counts:
    asked again whenever credentials change."""

    identity: Identity
    is_current: Callable[[], bool]
    # By a delegation token, which cannot be used to get another.
    is_by_token: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to a client's message; the conversation ends with a login."""

    reply: bytes
    login: Login | None = None


class Conversation(Protocol):
    async def answer(self, message: bytes) -> Step:
        """Raises AuthenticationFailed, and is then over."""
        ...


class Mechanism(Protocol):
    @property
    def name(self) -> str: ...
    def begin(self) -> Conversation: ...


class Plain:
    name = "PLAIN"

    def __init__(self, users: PlainUsers, slow_checks: SlowChecks) -> None:
        self._users = users
        self._slow_checks = slow_checks

    def begin(self) -> "Plain":
        """Each conversation is one message."""
        return self

    async def answer(self, message: bytes) -> Step:
        login = read_plain(message)
        stored = self._users.find(login.user)
        wanted = self._users.decoy if stored is None else stored
        if isinstance(wanted, ScramCredential):
            is_right = await self._slow_checks.run(partial(matches, login, wanted))
        else:
            is_right = matches(login, wanted)
        if not is_right or stored is None:
            raise AuthenticationFailed(INVALID_CREDENTIALS)
        identity = Identity(login.user)
        return Step(b"", Login(identity, lambda: self._users.find(login.user) == stored))


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """The SCRAM credential that belongs to a delegation token, and whom the token stands for."""

    credential: ScramCredential
    owner: Identity


class TokenCredentials(Protocol):
    """Delegation tokens, as logins see them."""

    async def find(self, mechanism: str, token_id: str) -> TokenCredential | None: ...
    def is_current(self, token_id: str) -> bool: ...


class Scram:
    def __init__(
        self,
        name: str,
        credentials: ScramCredentials,
        tokens: TokenCredentials,
        secret: bytes,
    ) -> None:
        """`secret` makes up salts for users who do not exist."""
        self.name = name
        self._credentials = credentials
        self._tokens = tokens
        self._secret = secret

    def begin(self) -> "ScramConversation":
        return ScramConversation(self)

    async def find(self, first: ClientFirst) -> tuple[ScramCredential, Login | None]:
        """The credential to prove, and what that is worth; no login fits one that is made up."""
        if first.extensions.get("tokenauth", "").lower() == "true":
            return await self._find_token(first.user)
        credential = self._credentials.find(self.name, first.user)
        if credential is None:
            return self._made_up(first.user), None
        return credential, Login(
            Identity(first.user),
            lambda: self._credentials.find(self.name, first.user) == credential,
        )

    async def _find_token(self, token_id: str) -> tuple[ScramCredential, Login | None]:
        found = await self._tokens.find(self.name, token_id)
        if found is None:
            return self._made_up(token_id), None
        login = Login(found.owner, lambda: self._tokens.is_current(token_id), is_by_token=True)
        return found.credential, login

    def _made_up(self, user: str) -> ScramCredential:
        iterations = self._credentials.usual_iterations(self.name)
        return no_credential(self.name, user, secret=self._secret, iterations=iterations)


class ScramConversation:
    def __init__(self, mechanism: Scram) -> None:
        self._mechanism = mechanism
        self._login: Login | None = None
        # None before the first message.
        self._exchange: ScramExchange | None = None

    async def answer(self, message: bytes) -> Step:
        if self._exchange is None:
            first = read_client_first(message)
            credential, self._login = await self._mechanism.find(first)
            nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
            self._exchange = ScramExchange(
                self._mechanism.name, first, credential, server_nonce=nonce
            )
            return Step(self._exchange.server_first())
        reply = self._exchange.server_final(message)
        # The credential may have been deleted since the first message.
        if self._login is None or not self._login.is_current():
            raise AuthenticationFailed(INVALID_CREDENTIALS)
        return Step(reply, self._login)


class OAuthBearer:
    name = "OAUTHBEARER"

    def __init__(self, keys: TokenKeys, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms

    def begin(self) -> "OAuthBearerConversation":
        return OAuthBearerConversation(self)

    async def check(self, token: str) -> Identity:
        """Raises InvalidToken."""
        try:
            return check_token(token, self._keys.keys, self._rules, now_ms=self._now_ms())
        except UnknownKey:
            keys = await self._keys.read_again()
            return check_token(token, keys, self._rules, now_ms=self._now_ms())


class OAuthBearerConversation:
    def __init__(self, mechanism: OAuthBearer) -> None:
        self._mechanism = mechanism
        self._is_refused = False

    async def answer(self, message: bytes) -> Step:
        if self._is_refused:
            if message != ACKNOWLEDGED:
                raise AuthenticationFailed("Authentication failed: the token was refused")
            raise AuthenticationFailed(REFUSAL.decode())
        login = read_initial(message)
        try:
            identity = await self._mechanism.check(login.token)
        except InvalidToken as problem:
            log.info("a bearer token was refused: %s", problem)
            self._is_refused = True
            return Step(REFUSAL)
        check_authorization_id(login.authorization_id, identity.user)
        # A token counts until it expires, which the session knows.
        return Step(b"", Login(identity, lambda: True))
