"""A socket that speaks TLS, and the output that waits on one.

A file's range cannot go out with `sendfile`: it is read, in small pieces, and encrypted. At most
one piece is encrypted ahead of what the socket takes, and one turn of the loop encrypts at most
`TURN_BYTES_MAX`, so that a reader that is slow or wants much costs the others nothing. OpenSSL
keeps buffers as large as the largest piece while a connection lives, so pieces are small.
"""

import os
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from millstream.broker.network.output import SENT, Bytes, OutputQueue, SendRange, Sent
from millstream.errors import ProtocolError
from millstream.security.tls_session import TlsSession, is_client_hello

TURN_BYTES_MAX: Final = 256 << 10
PIECE_BYTES_MAX: Final = 64 << 10
RECEIVED_BYTES_MAX: Final = 64 << 10
# What OpenSSL itself may have to say (new keys, alerts) while the client does not read.
_OWN_OUTPUT_BYTES_MAX: Final = 64 << 10


class TlsSocket:
    """As much of a socket as a connection uses. Non-blocking."""

    __slots__ = ("_has_heard", "_memory", "_session", "_sock", "_unsent")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, memory: memoryview) -> None:
        """`memory` is used during a call only, so all sockets of a loop share it."""
        self._sock = sock
        self._session = TlsSession(context)
        self._memory = memory
        # Encrypted, and not yet taken by the socket.
        self._unsent = memoryview(b"")
        self._has_heard = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def setsockopt(self, level: int, name: int, value: int, /) -> None:
        self._sock.setsockopt(level, name, value)

    def close(self) -> None:
        self._sock.close()
        # Who still knows the connection must not keep the buffers of OpenSSL.
        del self._session

    # -- receiving ------------------------------------------------------------------

    def shake_hands(self) -> bool:
        """Go on with the handshake; True when it is done.

        Raises BlockingIOError where the client must say more first, ssl.SSLError after a failed
        handshake, ConnectionError at the end, and ProtocolError for a client without TLS.
        """
        if self._receive() == 0:
            raise ConnectionResetError("the client left")
        try:
            return self._session.shake_hands()
        finally:
            # Also when it failed: the client learns why.
            self._send_own_output()

    def recv_into(self, buffer: memoryview) -> int:
        """0 at the end of the stream. Raises BlockingIOError where nothing has arrived."""
        if self._session.has_more:
            count = self._session.read_into(buffer)
            if count:
                return count
        if self._session.is_ended or self._receive() == 0:
            return 0
        count = self._session.read_into(buffer)
        self._send_own_output()
        if count == 0 and not self._session.is_ended:
            raise BlockingIOError
        return count

    @property
    def has_received_more(self) -> bool:
        """More has arrived than was read: the poller will not report it again."""
        return self._session.has_more

    def _receive(self) -> int:
        count = self._sock.recv_into(self._memory)
        if count:
            if not self._has_heard:
                self._has_heard = True
                if not is_client_hello(self._memory[:count]):
                    raise ProtocolError("it does not speak TLS, and this listener does")
            self._session.feed(self._memory[:count])
        return count

    def peer_certificate(self) -> bytes | None:
        return self._session.peer_certificate()

    @property
    def has_heard(self) -> bool:
        """Has the client sent anything?"""
        return self._has_heard

    # -- sending --------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def encrypt(self, data: bytes | bytearray | memoryview) -> None:
        """Only while nothing is unsent; `send_unsent` follows."""
        self._session.write(data)
        self._unsent = memoryview(self._session.take_output())

    def send_unsent(self) -> None:
        """Raises BlockingIOError where the socket does not take all of it."""
        while self._unsent:
            count = self._sock.send(self._unsent)
            self._unsent = self._unsent[count:]

    def drop_unsent(self) -> None:
        self._unsent = memoryview(b"")

    def _send_own_output(self) -> None:
        """What OpenSSL has to say by itself. What the socket does not take goes first next time."""
        if not self._session.output_bytes:
            return
        if len(self._unsent) + self._session.output_bytes > PIECE_BYTES_MAX + _OWN_OUTPUT_BYTES_MAX:
            raise ProtocolError("it makes TLS talk without end, and does not read")
        self._unsent = memoryview(bytes(self._unsent) + self._session.take_output())
        try:
            self.send_unsent()
        except BlockingIOError:
            return


class TlsOutput(OutputQueue):
    """Plain bytes and ranges that wait, in front of them what is encrypted already."""

    __slots__ = ("_sock",)

    def __init__(self, sock: TlsSocket) -> None:
        super().__init__()
        self._sock = sock

    def __bool__(self) -> bool:
        return bool(self._chunks) or self._sock.has_unsent

    def clear(self) -> None:
        super().clear()
        self._sock.drop_unsent()

    def send(self) -> Sent:
        budget = TURN_BYTES_MAX
        try:
            self._sock.send_unsent()
            while self._chunks:
                if budget <= 0:
                    return Sent.TURN_OVER
                head = self._chunks[0]
                if isinstance(head, SendRange):
                    if not self._is_warm(head):
                        return Sent.COLD
                    budget -= self._encrypt_range(head)
                else:
                    budget -= self._encrypt_bytes(head)
                self._sock.send_unsent()
        except BlockingIOError:
            return Sent.SOCKET_FULL
        return Sent.EVERYTHING

    def _encrypt_range(self, pending: SendRange) -> int:
        count = min(pending.left, PIECE_BYTES_MAX, pending.warm_until - pending.position)
        data = os.pread(pending.fd, count, pending.position)
        if not data:
            raise OSError(f"log file ended {pending.left} bytes early")
        self._sock.encrypt(data)
        self._range_sent(pending, len(data))
        SENT.by_copy += len(data)
        return len(data)

    def _encrypt_bytes(self, head: Bytes) -> int:
        """Small replies share a record: each costs as much as a kilobyte of records."""
        data: bytes | memoryview = memoryview(head)[:PIECE_BYTES_MAX]
        if len(self._chunks) > 1 and len(head) < PIECE_BYTES_MAX:
            data = memoryview(b"".join(self._first_chunks()))[:PIECE_BYTES_MAX]
        self._sock.encrypt(data)
        self._sent(len(data))
        return len(data)

    def _first_chunks(self) -> Iterator[Bytes]:
        """Those before the next range, about as much as a piece."""
        size = 0
        for chunk in self._chunks:
            if isinstance(chunk, SendRange) or size >= PIECE_BYTES_MAX:
                return
            size += len(chunk)
            yield memoryview(chunk)[:PIECE_BYTES_MAX]
