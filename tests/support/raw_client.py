"""A client that says exactly what a test wants said: any API, any version, any bytes."""

import socket
import struct
from types import TracebackType
from typing import TypeVar

from millstream.client.protocol import Dialogue, read_answer
from millstream.wire.cursor import Cursor
from millstream.wire.message import Message, Request

M = TypeVar("M", bound=Message)


class RawClient:
    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_seconds: float = 20,
        source_address: tuple[str, int] | None = None,
        client_id: str = "raw",
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout_seconds, source_address)
        self._dialogue = Dialogue(client_id)

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
        self.sock.sendall(self.framed(request, version))

    def framed(self, request: Request[Message], version: int) -> bytes:
        """What `send` would send."""
        return bytes(self._dialogue.frame(request, version))

    def receive(self, request: type[Request[M]], version: int) -> M:
        """The next answer, whichever request was sent before: a test may expect none to one."""
        cursor = Cursor(memoryview(self.receive_frame()), 4)
        if version >= request.api.response_tags_from:
            cursor.skip_tags()
        response = read_answer(request, version, cursor)
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
