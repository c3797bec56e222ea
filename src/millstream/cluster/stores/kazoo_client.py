"""kazoo, with what a node needs and kazoo does not have.

- Watches outlive a lost connection: the client tells the next server what it watches and up to
  which change it has seen, as Java's client does, and the server reports what has changed since.
  kazoo reports every watch instead, so that each node would read thousands of znodes again.
- Messages are read many at a time. kazoo makes some fifteen system calls for each, and in every
  one it may have to wait until the event loop's thread lets it continue.
- Watches and responses are passed on in the order in which the server sent them. kazoo has a
  thread for each, so that a response could overtake the notification of an earlier change.
  ZooKeeper promises that order, and the controller relies on it.
- Some answers of a server that kazoo would wait for too long, or misunderstand.

Everything here runs on kazoo's own thread, and callbacks must not block it.
"""

import logging
import select
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, ClassVar, Final

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionClosedRequireSaslError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.serialization import write_string
from kazoo.protocol.states import Callback, KeeperState

log = logging.getLogger(__name__)

# The share of a session timeout that a server may take to answer a new connection.
_GREETING_SHARE: Final = 1 / 6
_RECEIVE_BYTES: Final = 64 << 10
# Paths in one request: ZooKeeper drops a connection that sends more than jute.maxbuffer, a
# megabyte by default. Java's client has the same limit.
_WATCHES_BYTES_MAX: Final = 128 << 10
_LENGTH: Final = Struct("!i")
_ZXID: Final = Struct("!q")


class WatchingClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    # First kazoo's, then ours.
    _connection: Any

    def __init__(
        self,
        hosts: str,
        *,
        on_session_timeout: Callable[[int], None],
        **settings: Any,
    ) -> None:
        """`on_session_timeout` gets the timeout in ms that the server granted, which may be less
        than requested."""
        super().__init__(hosts, handler=_InOrder(), **settings)
        made = self._connection
        self._connection = _Connection(
            self, made.retry_sleeper, logger=made.logger, sasl_options=made.sasl_options
        )
        self._connection.on_session_timeout = on_session_timeout

    def wait_stopped(self) -> None:
        """Until the connection's thread has ended, which another thread may have asked for."""
        self._connection.connection_stopped.wait()

    def _reset_watchers(self) -> None:
        """Called when a connection is lost, and when the session is over."""
        if self._state != KeeperState.CONNECTING:
            super()._reset_watchers()


@dataclass(frozen=True, slots=True)
class _SetWatches:
    """ZooKeeper's request of that name: all of these are watched, and were seen as of `zxid`.

    One that has changed since is reported at once. So is a path in `data` that does not exist:
    if it did not exist before either, that is one report too many.
    """

    zxid: int
    data: Sequence[str]
    children: Sequence[str]

    type: ClassVar[int] = 101

    def serialize(self) -> bytes:
        absent: Sequence[str] = ()
        paths = b"".join(map(_vector, (self.data, absent, self.children)))
        return _ZXID.pack(self.zxid) + paths

    @staticmethod
    def deserialize(data: bytes, offset: int) -> bool:
        return True


def _vector(paths: Sequence[str]) -> bytes:
    return _LENGTH.pack(len(paths)) + b"".join(map(write_string, paths))


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    on_session_timeout: Callable[[int], None]
    # Received and not yet read.
    _received: bytearray

    def _connect(self, *arguments: Any) -> tuple[float, float]:
        self._received = bytearray()
        seen = self.client.last_zxid
        read_timeout_ms, connect_timeout_ms = super()._connect(*arguments)
        # kazoo returns two thirds of it.
        self.on_session_timeout(round(read_timeout_ms * 3 / 2))
        self._watch_again(seen, connect_timeout_ms / 1000)
        return read_timeout_ms, connect_timeout_ms

    def _watch_again(self, zxid: int, timeout_seconds: float) -> None:
        """Before any request of the new connection."""
        client = self.client
        for data in _parts(client._data_watchers):
            self._send_watches(_SetWatches(zxid, data, ()), timeout_seconds)
        for children in _parts(client._child_watchers):
            self._send_watches(_SetWatches(zxid, (), children), timeout_seconds)

    def _send_watches(self, request: _SetWatches, timeout_seconds: float) -> None:
        self._xid += 1
        self._submit(request, timeout_seconds, self._xid)
        self.client._pending.append((request, self.handler.async_result(), self._xid))

    def _invoke(self, timeout: float, *arguments: Any, **named: Any) -> Any:
        """A server that is just starting may accept a connection and never answer on it. kazoo
        would wait for a whole session timeout, and lose the session."""
        session_seconds = self.client._session_timeout / 1000
        return super()._invoke(min(timeout, session_seconds * _GREETING_SHARE), *arguments, **named)

    def _authenticate_with_sasl(self, *arguments: Any) -> None:
        """A server that requires SASL answers a wrong password with an error that kazoo does not
        know: its thread would end with a traceback. And kazoo takes a server that stops during a
        login for one that refuses it, and would give up the session."""
        try:
            super()._authenticate_with_sasl(*arguments)
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError("the server requires SASL") from error
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):
                raise error.__cause__ from None
            raise

    def _read_socket(self, read_timeout: float) -> Any:
        """All messages that are here. What is sent waits until then, which is at most a buffer."""
        response = super()._read_socket(read_timeout)
        while response != CLOSE_RESPONSE and self._has_message():
            response = super()._read_socket(read_timeout)
        return response

    def _has_message(self) -> bool:
        received = self._received
        if len(received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received)
            if len(received) >= _LENGTH.size + length:
                return True
        # Bytes that are decrypted already do not show as readable.
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _read(self, length: int, timeout: float) -> bytes:
        received = self._received
        with self._socket_error_handling():
            while len(received) < length:
                received += self._receive(timeout)
        taken = bytes(received[:length])
        del received[:length]
        return taken

    def _receive(self, timeout: float) -> bytes:
        while True:
            try:
                data: bytes = self._socket.recv(_RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not self.handler.select([self._socket], [], [], timeout)[0]:
                    raise self.handler.timeout_exception("socket time-out during read") from None
                continue
            if not data:
                raise ConnectionDropped("socket connection broken")
            return data


def _parts(paths: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size_bytes = 0
    for path in list(paths):
        part.append(path)
        size_bytes += len(path)
        if size_bytes >= _WATCHES_BYTES_MAX:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


class _AtOnce:
    """In place of a queue of calls and a thread that makes them."""

    def put(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            # kazoo's thread must go on, whatever a callback does.
            log.exception("a callback of ZooKeeper's client failed")


class _InOrder(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    def __init__(self) -> None:
        super().__init__()
        self.completion_queue = _AtOnce()

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Callback) -> None:
        self.completion_queue.put(lambda: callback.func(*callback.args))

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """kazoo's own makes a selector for each call, with five system calls."""
        polling = select.poll()
        for each in readers:
            polling.register(each, select.POLLIN)
        for each in writers:
            polling.register(each, select.POLLOUT)
        ready = {descriptor for descriptor, _ in polling.poll(_milliseconds(timeout))}
        return (
            [each for each in readers if each.fileno() in ready],
            [each for each in writers if each.fileno() in ready],
            [],
        )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
