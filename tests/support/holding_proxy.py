"""A proxy that holds back one request, until a test lets it go: what a slow network does.

The client sees a connection that no longer answers, gives it up and asks again over a new
one. The held request stays on its way to the node and arrives when nobody expects it.
"""

import socket
import struct
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from millstream.wire.apis import declared_api
from millstream.wire.codec import response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.message import Message, Request

_SECONDS = 20


@dataclass
class Held:
    """A request on its way, and the connection to the node that it travels on."""

    upstream: socket.socket
    frame: bytes

    def let_go(self) -> Any:
        """Deliver it now; what the node answers."""
        self.upstream.settimeout(_SECONDS)
        self.upstream.sendall(self.frame)
        api_key, version = struct.unpack_from(">hh", self.frame, 4)
        size = struct.unpack(">i", _receive(self.upstream, 4))[0]
        cursor = Cursor(memoryview(_receive(self.upstream, size)), 4)
        api = declared_api(api_key)
        assert api is not None
        if api.is_flexible(version):
            cursor.skip_tags()
        self.upstream.close()
        return response_reader(api.request, version)(cursor)

    @property
    def version(self) -> int:
        return int(struct.unpack_from(">h", self.frame, 6)[0])


class HoldingProxy:
    """Listens at once; knows its node when `node` is set."""

    def __init__(self) -> None:
        self.node: tuple[str, int] = ("", 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._wanted: int | None = None
        self._held: Held | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "HoldingProxy":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def hold_next(self, request: type[Request[Message]]) -> None:
        with self._changed:
            self._wanted, self._held = request.api.key, None

    def held(self) -> Held:
        """The request that was held back; waits for it."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._held is not None, _SECONDS)
            assert self._held is not None
            return self._held

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(self.node)
            except OSError:
                # The node stopped first, and a client asks for it once more.
                client.close()
                continue
            threading.Thread(target=self._up, args=(client, upstream), daemon=True).start()
            threading.Thread(target=_down, args=(upstream, client), daemon=True).start()

    def _up(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while True:
                size = _receive(client, 4)
                frame = size + _receive(client, struct.unpack(">i", size)[0])
                if self._is_wanted(frame):
                    # Its answer must come to the one who lets it go, on a fresh connection.
                    with self._changed:
                        self._held = Held(socket.create_connection(self.node), frame)
                        self._changed.notify_all()
                    while client.recv(65536):
                        pass
                    break
                upstream.sendall(frame)
        except OSError:
            pass
        upstream.close()

    def _is_wanted(self, frame: bytes) -> bool:
        with self._changed:
            if self._wanted is None or struct.unpack_from(">h", frame, 4)[0] != self._wanted:
                return False
            self._wanted = None
            return True


def _down(upstream: socket.socket, client: socket.socket) -> None:
    try:
        while data := upstream.recv(65536):
            client.sendall(data)
    except OSError:
        pass
    client.close()


def _receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionResetError("closed in the middle of a frame")
        data += part
    return data
