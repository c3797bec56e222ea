"""One connection to another node from an event loop: requests out, answers back, one at a time.

Each answer gets its own memory, so views that a caller keeps of it stay valid, except where the
caller brings the memory (`AnswerMemory`). After any failure the caller closes the connection: an
unread answer would be taken for the next one's.
"""

import asyncio
import contextlib
import socket
import ssl
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


class NoAnswer(Exception):
    """The other node cannot be reached, has gone, or does not answer in time."""


class AnswerTimedOut(NoAnswer):
    """The other node was asked and said nothing: asking again would only wait as long again."""


class AnswerMemory:
    """Where answers are received one after the other: each takes the place of the one before, and
    views of that one must not be used any more.

    A follower reads a megabyte at a time, and new memory for each would cost more than to read it.
    """

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_RECEIVED_BYTES_MAX))

    def fit(self, size_bytes: int, received: int) -> None:
        """Have room for an answer of this size, of which the first bytes are here already. What a
        large one has needed is given back with the first one that is small."""
        if size_bytes <= _RECEIVED_BYTES_MAX:
            wanted_bytes = _RECEIVED_BYTES_MAX
        else:
            wanted_bytes = max(len(self.view), 1 << (size_bytes - 1).bit_length())
        if wanted_bytes != len(self.view):
            view = memoryview(bytearray(wanted_bytes))
            view[:received] = self.view[:received]
            self.view = view


class PlainStream:
    """Bytes over a socket.

    The loop watches the socket as long as answers are awaited one after the other: its own
    `sock_recv_into` would begin and end that for every one of them.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        # What the caller that waits for the socket awaits.
        self._ready: asyncio.Future[None] | None = None
        self._is_watched = False
        # It takes no more for the moment, and the loop says when it does again.
        self._is_full = False
        self._failure: OSError | None = None

    async def send(self, data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while True:
            with contextlib.suppress(BlockingIOError):
                rest = rest[self._sock.send(rest) :]
            if not rest:
                return
            self._is_full = True
            self._loop.add_writer(self._fd, self._wake)
            try:
                await self._wait()
            finally:
                self._stop_writing()

    async def receive_into(self, buffer: memoryview) -> int:
        """0 at the end of the stream."""
        while True:
            try:
                return self._sock.recv_into(buffer)
            except BlockingIOError:
                if not self._is_watched:
                    self._is_watched = True
                    self._loop.add_reader(self._fd, self._on_readable)
                await self._wait()

    def begin(self) -> None:
        """Forget a failure that came too late for what was under way."""
        self._failure = None

    def fail(self, error: OSError) -> None:
        """End the wait, or the next one."""
        self._failure = error
        self._wake()

    def close(self) -> None:
        # Before the descriptor is closed: its number may be reused at once.
        self._stop_reading()
        self._stop_writing()
        self._sock.close()
        self.fail(ConnectionAbortedError("the connection was closed here"))

    def _on_readable(self) -> None:
        if self._ready is None or self._is_full:
            # Nobody waits to read. What there is, as the end of the stream, stays until somebody
            # does, and the loop would tell of it for ever.
            self._stop_reading()
        else:
            self._wake()

    def _stop_reading(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._fd)

    def _stop_writing(self) -> None:
        if self._is_full:
            self._is_full = False
            self._loop.remove_writer(self._fd)

    async def _wait(self) -> None:
        if self._failure is None:
            self._ready = self._loop.create_future()
            try:
                await self._ready
            finally:
                self._ready = None
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)


class TlsStream:
    """Plain bytes over a stream that carries TLS."""

    def __init__(self, wire: PlainStream, session: TlsSession) -> None:
        self._wire = wire
        self._session = session
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
            await self._wire.send(output)

    async def _receive(self) -> int:
        count = await self._wire.receive_into(self._memory)
        self._session.feed(self._memory[:count])
        return count


class Connection:
    def __init__(self, sock: socket.socket, client_id: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire = PlainStream(sock)
        self._stream: PlainStream | TlsStream = self._wire
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
                        self._wire, TlsSession(tls_context(security), server_name=host)
                    )
                    await stream.shake_hands()
                self._stream = stream
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

    async def exchange(
        self, request: bytearray, *, timeout_seconds: float, memory: AnswerMemory | None = None
    ) -> Cursor:
        """Send a request that `begin` began; the answer behind its header. Raises NoAnswer, also
        when the connection is closed meanwhile."""
        assert not self._is_busy, "a connection carries one request at a time"
        self._is_busy = True
        finish_frame(request)
        self._wire.begin()
        timer = self._loop.call_later(timeout_seconds, self._wire.fail, TimeoutError())
        try:
            await self._stream.send(request)
            if memory is None:
                frame = await self._receive_answer()
            else:
                frame = await self._receive_answer_into(memory)
            cursor = self._dialogue.open_answer(frame)
        except TimeoutError as error:
            raise AnswerTimedOut("no answer in time") from error
        except (OSError, ProtocolError) as error:
            raise NoAnswer(str(error)) from error
        finally:
            timer.cancel()
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

    async def _receive_answer(self) -> memoryview:
        head = memoryview(bytearray(SIZE_BYTES))
        await self._receive(head, 0, SIZE_BYTES)
        size = answer_size(head)
        frame = memoryview(bytearray(size))
        await self._receive(frame, 0, size)
        return frame

    async def _receive_answer_into(self, memory: AnswerMemory) -> memoryview:
        # With its size comes most of an answer, if not all of it. Nothing follows it: the next one
        # is not asked for yet.
        received = await self._receive(memory.view, 0, SIZE_BYTES)
        end = SIZE_BYTES + answer_size(memory.view[:SIZE_BYTES])
        if received > end:
            raise ProtocolError("an answer that nobody has asked for")
        memory.fit(end, received)
        await self._receive(memory.view[:end], received, end)
        return memory.view[SIZE_BYTES:end]

    async def _receive(self, data: memoryview, position: int, least: int) -> int:
        """Fill `data` from a position on, at least up to another; where it stopped."""
        while position < least:
            count = await self._stream.receive_into(data[position:])
            if count == 0:
                raise NoAnswer("the connection was closed")
            position += count
        return position

    def close(self) -> None:
        """What is under way fails."""
        self._wire.close()
