"""The certificates of the node's TLS listeners, read again when they change.

New handshakes use the new certificate, and open connections go on with what they agreed on. A new
file that cannot be used is logged, and the certificate before it stays.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from millstream.config import BrokerConfig, ConfigError, Listener
from millstream.errors import ProtocolError
from millstream.model import ANONYMOUS, Principal
from millstream.security.principal_mapping import NoRuleMatches, parse_rules, principal_of
from millstream.security.tls import TlsOptions, read_tls_options, server_context

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 2.0

# What changes when a file is written or replaced.
_Stamp = tuple[int, int, int]


class ListenerIdentity:
    """What one listener shows in handshakes, and who its clients are."""

    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        """Raises ConfigError."""
        self.name = listener.name
        own = config.for_listener(listener.name)
        self._rules = parse_rules(own.string("ssl.principal.mapping.rules"))
        self._uses_sasl = listener.uses_sasl
        self._options = self._read_options(config)
        # From before the files are read: a change during that is seen as one.
        self._stamps = _stamps(self._options)
        self._context = _named_errors(self.name, self._options)

    def _read_options(self, config: BrokerConfig) -> TlsOptions:
        own = config.for_listener(self.name)
        options = read_tls_options(own)
        if self._uses_sasl and not own.is_own("ssl.client.auth"):
            # As in Kafka: clients that log in need a certificate only where their listener says so.
            return replace(options, client_auth="none")
        return options

    def context(self) -> ssl.SSLContext:
        return self._context

    def principal(self, certificate: bytes | None) -> Principal:
        # With SASL, that says who the client is.
        if self._uses_sasl:
            return ANONYMOUS
        try:
            return principal_of(certificate, self._rules)
        except NoRuleMatches as problem:
            raise ProtocolError(str(problem)) from None

    def refresh(self, config: BrokerConfig) -> None:
        """Read the files again if they or the options have changed. Blocks."""
        options = self._read_options(config)
        stamps = _stamps(options)
        if (options, stamps) == (self._options, self._stamps):
            return
        self._options, self._stamps = options, stamps
        try:
            self._context = _named_errors(self.name, options)
        except ConfigError as problem:
            log.error("the old certificate stays in use: %s", problem)
        else:
            log.info("listener %s: new certificate for new connections", self.name)


def _named_errors(listener: str, options: TlsOptions) -> ssl.SSLContext:
    try:
        return server_context(options)
    except ConfigError as problem:
        raise ConfigError(f"listener {listener}: {problem}") from None


def _stamps(options: TlsOptions) -> tuple[_Stamp | None, ...]:
    return tuple(_stamp(path) for path in options.files)


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Certificates:
    """Of all listeners that speak TLS."""

    def __init__(self, listeners: Sequence[Listener], config: BrokerConfig) -> None:
        """Raises ConfigError."""
        self._of = {
            listener.name: ListenerIdentity(listener, config)
            for listener in listeners
            if listener.uses_tls
        }

    def __bool__(self) -> bool:
        return bool(self._of)

    def get(self, listener: str) -> ListenerIdentity | None:
        """None for a listener without TLS."""
        return self._of.get(listener)

    async def watch(self, config: Callable[[], BrokerConfig]) -> None:
        """Until cancelled, follow changes of the files and of the options in force."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for identity in self._of.values():
                try:
                    await asyncio.to_thread(identity.refresh, config())
                except Exception:
                    log.exception("listener %s: cannot look for a new certificate", identity.name)
