"""A connection to another node: requests out, answers back, one at a time.

Reads straight into the answer's own memory, so what a caller cuts out of it are views.
Whoever has a link closes it after any failure: an answer that was not read would be taken
for that of the next request.
"""

import asyncio
import socket
import struct
from typing import Final, TypeVar

from millstream.errors import ProtocolError
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, finish_frame, write_request_header
from millstream.wire.message import Message, Request

M = TypeVar("M", bound=Message)
_SIZE: Final = struct.Struct(">i")
# Far above what we ever ask for; a size beyond it is not Kafka's protocol.
ANSWER_BYTES_MAX: Final = 1 << 30


class LinkFailed(Exception):
    """The other node cannot be reached, has gone, or does not answer in time."""


class LinkTimedOut(LinkFailed):
    """The other node was asked and said nothing: asking again would only wait as long again."""


class Link:
    def __init__(self, sock: socket.socket, client_id: str) -> None:
        self._sock = sock
        self._client_id = client_id
        self._correlation_id = 0
        self._is_busy = False

    @classmethod
    async def connect(
        cls, host: str, port: int, *, client_id: str, timeout_seconds: float
    ) -> "Link":
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
            raise LinkFailed(f"cannot reach {host}:{port}: {error or 'timed out'}") from error
        return cls(sock, client_id)

    def begin(self, api_key: int, version: int) -> bytearray:
        """A request with its header, to which the caller adds the body."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        out = bytearray(_SIZE.size)
        header = RequestHeader(api_key, version, self._correlation_id, self._client_id)
        write_request_header(out, header)
        return out

    async def exchange(
        self, request: bytearray, *, is_flexible: bool, timeout_seconds: float
    ) -> Cursor:
        """Send a request that `begin` began; the answer behind its header. Raises LinkFailed."""
        assert not self._is_busy, "a link carries one request at a time"
        self._is_busy = True
        loop = asyncio.get_running_loop()
        finish_frame(request)
        try:
            async with asyncio.timeout(timeout_seconds):
                await loop.sock_sendall(self._sock, request)
                frame = await self._receive(_SIZE.unpack(await self._receive(_SIZE.size))[0])
        except TimeoutError as error:
            raise LinkTimedOut("no answer in time") from error
        except OSError as error:
            raise LinkFailed(str(error)) from error
        self._is_busy = False
        cursor = Cursor(frame)
        if cursor.int32() != self._correlation_id:
            raise LinkFailed("an answer to another request")
        if is_flexible:
            cursor.skip_tags()
        return cursor

    async def ask(self, request: Request[M], version: int, *, timeout_seconds: float) -> M:
        """One request and its answer. Raises LinkFailed."""
        api, kind = request.api, type(request)
        out = self.begin(api.key, version)
        request_writer(kind, version)(out, request)
        is_flexible = api.is_flexible(version)
        cursor = await self.exchange(out, is_flexible=is_flexible, timeout_seconds=timeout_seconds)
        try:
            return response_reader(kind, version)(cursor)
        except ProtocolError as error:
            raise LinkFailed(str(error)) from error

    async def _receive(self, size: int) -> memoryview:
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise LinkFailed(f"an answer of {size} bytes")
        loop = asyncio.get_running_loop()
        data = memoryview(bytearray(size))
        position = 0
        while position < size:
            count = await loop.sock_recv_into(self._sock, data[position:])
            if count == 0:
                raise LinkFailed("the connection was closed")
            position += count
        return data

    def close(self) -> None:
        self._sock.close()
