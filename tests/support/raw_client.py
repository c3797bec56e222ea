"""A client that says exactly what a test wants said: any API, any version, any bytes."""

import socket
import struct
from types import TracebackType
from typing import TypeVar

from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, write_request_header
from millstream.wire.message import Message, Request

M = TypeVar("M", bound=Message)


class RawClient:
    def __init__(self, bootstrap: str, *, timeout_seconds: float = 20) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=timeout_seconds)
        self._correlation_id = 0

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sock.close()

    def ask(self, request: Request[M], version: int) -> M:
        """Send a request and return its response."""
        self.send(request, version)
        return self.receive(type(request), version)

    def send(self, request: Request[Message], version: int) -> None:
        self._correlation_id += 1
        body = bytearray()
        header = RequestHeader(request.api.key, version, self._correlation_id, "raw")
        write_request_header(body, header)
        request_writer(type(request), version)(body, request)
        self.send_frame(bytes(body))

    def receive(self, request: type[Request[M]], version: int) -> M:
        cursor = Cursor(memoryview(self.receive_frame()))
        cursor.int32()
        if request.api.is_flexible(version) and request.api is not ApiVersionsRequest.api:
            cursor.skip_tags()
        response = response_reader(request, version)(cursor)
        assert cursor.position == cursor.end, "the response is longer than its schema"
        return response

    def send_frame(self, body: bytes) -> None:
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def receive_frame(self) -> bytes:
        return self._receive_exactly(struct.unpack(">i", self._receive_exactly(4))[0])

    def _receive_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the node closed the connection")
            data += part
        return data

    def is_closed_by_peer(self) -> bool:
        """Waits until the node closes, or the time-out of the socket says it does not."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False
