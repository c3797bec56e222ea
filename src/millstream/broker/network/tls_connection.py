"""A client's connection over TLS: a handshake first, then as any other.

The compiled receiver only watches the socket here: what arrives has to be decrypted before it can
be compared with anything.
"""

import socket
import ssl
from typing import Final, Protocol

from millstream.broker.network.connection import Connection, ConnectionHost
from millstream.broker.network.sender import Sender
from millstream.broker.network.tls_socket import TlsOutput, TlsSocket
from millstream.errors import ProtocolError
from millstream.model import Principal

HANDSHAKE_SECONDS_MAX: Final = 10.0


class Identity(Protocol):
    """The node's side of a listener's handshakes."""

    def context(self) -> ssl.SSLContext:
        """For the next handshake: the certificate may have changed since the last one."""
        ...

    def principal(self, certificate: bytes | None) -> Principal:
        """Who the client is, by its certificate if it has shown one. Raises ProtocolError."""
        ...


class TlsHost(ConnectionHost, Protocol):
    @property
    def tls_memory(self) -> memoryview:
        """Where all sockets receive what is still encrypted."""
        ...

    def shake_hands_soon(self, connection: "TlsConnection") -> None:
        """Have `shake_hands` called in turn with other handshakes."""
        ...


class TlsConnection(Connection):
    """
    | state       | reads | ends when                                        |
    |-------------|-------|--------------------------------------------------|
    | handshaking | yes   | its next flight has arrived                      |
    | queued      | no    | other handshakes had their turn                  |
    | open        |       | see `Connection`; `_is_due`: with bytes that are |
    |             |       | here already, and that no poller reports         |
    """

    __slots__ = ("_identity", "_is_due", "_tls_host", "_tls_sock", "handshake_began_at")

    def __init__(
        self,
        host: TlsHost,
        sock: socket.socket,
        identity: Identity,
        *,
        listener: str,
        peer: str,
        now: float,
    ) -> None:
        self._tls_host = host
        self._identity = identity
        self._tls_sock = TlsSocket(sock, identity.context(), host.tls_memory)
        self._is_due = False
        # None once the handshake is done.
        self.handshake_began_at: float | None = now
        super().__init__(host, self._tls_sock, listener=listener, peer=peer, now=now)

    def on_readable(self) -> None:
        if self.handshake_began_at is not None:
            self._registration.pause()
            self._tls_host.shake_hands_soon(self)
            return
        super().on_readable()
        self._go_on_if_more()

    def shake_hands(self) -> None:
        if self.is_closed or self.handshake_began_at is None:
            return
        try:
            if self._tls_sock.shake_hands():
                self.identify(self._identity.principal(self._tls_sock.peer_certificate()))
                self.handshake_began_at = None
                self.received_at = self._loop.time()
        except BlockingIOError:
            pass
        except ssl.SSLError as error:
            self.close(f"the TLS handshake failed: {_reason(error)}")
        except ConnectionError:
            self.close()
        except (OSError, ProtocolError) as error:
            self.close(str(error))
        if not self.is_closed:
            self._registration.resume()
            self._go_on_if_more()

    def handshake_overdue(self, now: float) -> bool:
        began = self.handshake_began_at
        return began is not None and now - began > HANDSHAKE_SECONDS_MAX

    def close_unfinished(self) -> None:
        # Nodes watch each other's ports with connections on which they say nothing.
        reason = f"no TLS handshake within {HANDSHAKE_SECONDS_MAX:.0f} s"
        self.close(reason if self._tls_sock.has_heard else None)

    def _read_if_allowed(self) -> None:
        super()._read_if_allowed()
        self._go_on_if_more()

    def _go_on_if_more(self) -> None:
        if self._is_due or self.is_closed or not self.is_reading:
            return
        if self._tls_sock.has_received_more:
            self._is_due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        if not self.is_closed and self.is_reading:
            self.on_readable()

    def _new_sender(self) -> Sender:
        return Sender(self, self._host, self._tls_sock, TlsOutput(self._tls_sock))

    def on_sent_everything(self) -> None:
        # The receiver cannot answer for us: it sees only what is encrypted.
        if self.closes_when_sent is not None:
            self.close(self.closes_when_sent)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
