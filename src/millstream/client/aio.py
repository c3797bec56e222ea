"""One connection to another node from an event loop: requests out, answers back, one at a time.

Each answer gets its own memory, so views that a caller keeps of it stay valid. After any
failure the caller closes the connection: an unread answer would be taken for the next one's.
"""

import asyncio
import socket
from typing import TypeVar

from millstream.client.protocol import Dialogue, answer_size, read_answer
from millstream.errors import ProtocolError
from millstream.wire.cursor import Cursor
from millstream.wire.headers import SIZE_BYTES, finish_frame
from millstream.wire.message import Api, Message, Request

M = TypeVar("M", bound=Message)


class NoAnswer(Exception):
    """The other node cannot be reached, has gone, or does not answer in time."""


class AnswerTimedOut(NoAnswer):
    """The other node was asked and said nothing: asking again would only wait as long again."""


class Connection:
    def __init__(self, sock: socket.socket, client_id: str) -> None:
        self._sock = sock
        self._dialogue = Dialogue(client_id)
        self._is_busy = False

    @classmethod
    async def open(
        cls, host: str, port: int, *, client_id: str, timeout_seconds: float
    ) -> "Connection":
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
        return cls(sock, client_id)

    def begin(self, api: Api, version: int) -> bytearray:
        """A request with its header, to which the caller adds the body."""
        return self._dialogue.begin(api, version)

    async def exchange(self, request: bytearray, *, timeout_seconds: float) -> Cursor:
        """Send a request that `begin` began; the answer behind its header. Raises NoAnswer."""
        assert not self._is_busy, "a connection carries one request at a time"
        self._is_busy = True
        loop = asyncio.get_running_loop()
        finish_frame(request)
        try:
            async with asyncio.timeout(timeout_seconds):
                await loop.sock_sendall(self._sock, request)
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
        loop = asyncio.get_running_loop()
        data = memoryview(bytearray(size))
        position = 0
        while position < size:
            count = await loop.sock_recv_into(self._sock, data[position:])
            if count == 0:
                raise NoAnswer("the connection was closed")
            position += count
        return data

    def close(self) -> None:
        self._sock.close()
