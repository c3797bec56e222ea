"""All that lets clients of this node log in: built at the start, kept current while it runs."""

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from millstream.broker.network.connection import Answer
from millstream.broker.node.state import NodeState
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.sasl_listeners import Credentials, SaslListeners, sasl_listeners
from millstream.broker.security.scram_credentials import ScramCredentials
from millstream.broker.security.tokens import Tokens
from millstream.cluster.client_entities import ClientEntity
from millstream.config import Listener
from millstream.errors import ConfigError, KafkaError
from millstream.security.sasl.initial_users import InitialUser, parse_initial_users
from millstream.security.sasl.scram import SALT_BYTES, encode_credential, new_credential

log = logging.getLogger(__name__)

_LOOK_AT_FILES_SECONDS: Final = 0.5
# A user who changes its own password gets the reply before its connections are closed.
_LAST_REPLY_SECONDS: Final = 0.2


class Logins:
    def __init__(self, node: NodeState) -> None:
        self._node = node
        self.tokens = Tokens(node)
        self.scram = ScramCredentials(node.image.client_entities)
        self._made = SaslListeners()
        self._watching: asyncio.Task[None] | None = None
        # Set by `prepare`.
        self.authentication: Authentication

    def prepare(self, listeners: Sequence[Listener], secret: bytes, dispatch_sasl: Answer) -> None:
        """Before the first connection. Raises ConfigError."""
        config = self._node.config
        _initial_users(config.optional_string("sasl.scram.initial.users"))
        credentials = Credentials(self.scram, self.tokens, secret)
        self._made = sasl_listeners(listeners, config, credentials, self._node.clock)
        self.authentication = Authentication(
            self._made.listeners,
            dispatch_sasl=dispatch_sasl,
            now_ms=self._node.clock.now_ms,
            failure_delay_seconds=config.int("connection.failed.authentication.delay.ms") / 1000,
        )
        self._node.image.client_entities.listeners.append(lambda changed: self._recheck_soon())
        self._node.image.delegation_tokens.listeners.append(self._recheck_soon)

    async def start(self) -> None:
        """When the node can write: create the first users, and follow the files."""
        await self._create_initial_users()
        self.tokens.start()
        if self._made.plain_users:
            self._watching = asyncio.get_running_loop().create_task(self._watch_files())

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.tokens.stop()
        for keys in self._made.token_keys:
            keys.stop()
        self._made.slow_checks.stop()

    def _recheck_soon(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(_LAST_REPLY_SECONDS, self.authentication.recheck)

    async def _watch_files(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AT_FILES_SECONDS)
            changed = [users for users in self._made.plain_users if users.reload()]
            if changed:
                self.authentication.recheck()

    async def _create_initial_users(self) -> None:
        wanted = _initial_users(self._node.config.optional_string("sasl.scram.initial.users"))
        if not wanted or any(True for _ in self.scram.users()):
            return
        for user in wanted:
            credential = await asyncio.to_thread(_credential, user)
            try:
                await self._node.metadata.alter_client_entity(
                    ClientEntity(user=user.name), {user.mechanism: credential}
                )
            except KafkaError as error:
                log.error("user %r could not be created: %s", user.name, error.message)


def _initial_users(text: str | None) -> list[InitialUser]:
    try:
        return parse_initial_users(text or "")
    except ValueError as error:
        raise ConfigError(f"sasl.scram.initial.users: {error}") from None


def _credential(user: InitialUser) -> str:
    made = new_credential(
        user.mechanism, user.password, salt=os.urandom(SALT_BYTES), iterations=user.iterations
    )
    return encode_credential(made)
