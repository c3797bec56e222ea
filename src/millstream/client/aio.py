"""One connection to another node from an event loop: requests out, answers back, one at a time.

Each answer gets its own memory, so views that a caller keeps of it stay valid. After any
failure the caller closes the connection: an unread answer would be taken for the next one's.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from millstream.client.protocol import Dialogue, answer_size, read_answer
from millstream.client.security import (
    PLAINTEXT,
    Security,
    SecurityError,
    log_in,
    tls_context,
    tls_refusal,
)
from millstream.errors import ProtocolError
from millstream.security.tls_session import TlsSession
from millstream.wire.cursor import Cursor
from millstream.wire.headers import SIZE_BYTES, finish_frame
from millstream.wire.message import Api, Message, Request

M = TypeVar("M", bound=Message)


_SASL_VERSION: Final = 1
_RECEIVED_BYTES_MAX: Final = 256 << 10

Send = Callable[[bytes | bytearray], Awaitable[None]]
ReceiveInto = Callable[[memoryview], Awaitable[int]]


class NoAnswer(Exception):
    """The other node cannot be reached, has gone, or does not answer in time."""


class AnswerTimedOut(NoAnswer):
    """The other node was asked and said nothing: asking again would only wait as long again."""


class TlsStream:
    """Plain bytes over a socket that carries TLS."""

    def __init__(self, sock: socket.socket, session: TlsSession) -> None:
        self._sock = sock
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._memory = memoryview(bytearray(_RECEIVED_BYTES_MAX))

    async def shake_hands(self) -> None:
        """Raises ssl.SSLError and OSError."""
        while not self._session.shake_hands():
            await self._send_output()
            if await self._receive() == 0:
                raise ConnectionResetError("the connection was closed during the TLS handshake")
        await self._send_output()

    async def send(self, data: bytes | bytearray) -> None:
        self._session.write(data)
        await self._send_output()

    async def receive_into(self, buffer: memoryview) -> int:
        """0 at the end of the stream."""
        while True:
            count = self._session.read_into(buffer)
            if count or self._session.is_ended or await self._receive() == 0:
                return count

    async def _send_output(self) -> None:
        output = self._session.take_output()
        if output:
            await self._loop.sock_sendall(self._sock, output)

    async def _receive(self) -> int:
        count = await self._loop.sock_recv_into(self._sock, self._memory)
        self._session.feed(self._memory[:count])
        return count


class Connection:
    def __init__(self, sock: socket.socket, client_id: str) -> None:
        loop = asyncio.get_running_loop()
        self._sock = sock
        self._send: Send = partial(loop.sock_sendall, sock)
        self._receive_into: ReceiveInto = partial(loop.sock_recv_into, sock)
        self._dialogue = Dialogue(client_id)
        self._is_busy = False

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_seconds: float,
        security: Security = PLAINTEXT,
    ) -> "Connection":
        """Connected, and logged in where `security` says so. Raises NoAnswer."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_seconds):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                family, kind, protocol, _, address = found[0]
                sock = socket.socket(family, kind, protocol)
                try:
                    sock.setblocking(False)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    await loop.sock_connect(sock, address)
                except BaseException:
                    sock.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise NoAnswer(f"cannot reach {host}:{port}: {error or 'timed out'}") from error
        connection = cls(sock, client_id)
        try:
            await connection._secure(security, host, timeout_seconds)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _secure(self, security: Security, host: str, timeout_seconds: float) -> None:
        try:
            if security.uses_tls:
                async with asyncio.timeout(timeout_seconds):
                    stream = TlsStream(
                        self._sock, TlsSession(tls_context(security), server_name=host)
                    )
                    await stream.shake_hands()
                self._send, self._receive_into = stream.send, stream.receive_into
            if security.uses_sasl:
                await self._log_in(security, timeout_seconds)
        except TimeoutError as error:
            raise NoAnswer("no TLS handshake in time") from error
        except ssl.SSLError as error:
            raise NoAnswer(str(tls_refusal(error, security) or error)) from error
        except (OSError, SecurityError) as error:
            raise NoAnswer(str(error)) from error

    async def _log_in(self, security: Security, timeout_seconds: float) -> None:
        steps = log_in(security)
        request = next(steps, None)
        while request is not None:
            answer = await self.ask(request, _SASL_VERSION, timeout_seconds=timeout_seconds)
            try:
                request = steps.send(answer)
            except StopIteration:
                return

    def begin(self, api: Api, version: int) -> bytearray:
        """A request with its header, to which the caller adds the body."""
        return self._dialogue.begin(api, version)

    async def exchange(self, request: bytearray, *, timeout_seconds: float) -> Cursor:
        """Send a request that `begin` began; the answer behind its header. Raises NoAnswer."""
        assert not self._is_busy, "a connection carries one request at a time"
        self._is_busy = True
        finish_frame(request)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._send(request)
                size = answer_size(await self._receive(SIZE_BYTES))
                frame = await self._receive(size)
            cursor = self._dialogue.open_answer(frame)
        except TimeoutError as error:
            raise AnswerTimedOut("no answer in time") from error
        except (OSError, ProtocolError) as error:
            raise NoAnswer(str(error)) from error
        self._is_busy = False
        return cursor

    async def ask(self, request: Request[M], version: int, *, timeout_seconds: float) -> M:
        """One request and its answer. Nodes of one cluster know each other's versions, so
        none are negotiated. Raises NoAnswer."""
        frame = self._dialogue.frame(request, version)
        cursor = await self.exchange(frame, timeout_seconds=timeout_seconds)
        try:
            return read_answer(type(request), version, cursor)
        except ProtocolError as error:
            raise NoAnswer(str(error)) from error

    async def _receive(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        position = 0
        while position < size:
            count = await self._receive_into(data[position:])
            if count == 0:
                raise NoAnswer("the connection was closed")
            position += count
        return data

    def close(self) -> None:
        self._sock.close()
