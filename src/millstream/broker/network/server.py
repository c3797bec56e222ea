"""Listening sockets, the connections they accept, and the limits on them."""

import asyncio
import errno
import logging
import os
import resource
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Final

from millstream.broker.network.accept_rate import AcceptRate
from millstream.broker.network.client_turns import ClientTurns
from millstream.broker.network.connection import SHARED_BUFFER_BYTES, Connection
from millstream.broker.network.deadlines import overdue
from millstream.broker.network.memory import RequestMemory
from millstream.broker.network.receiving import LoopReceiver, Receiver, start_receiving
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.tls_connection import Identity, TlsConnection
from millstream.broker.network.tls_socket import RECEIVED_BYTES_MAX
from millstream.errors import StartError
from millstream.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
# This many replies wait for each other. With fewer, every send wakes a client that needs a
# core; with more, clients are idle while hundreds are served.
FLUSHED_TOGETHER: Final = 16
# Large frames that can be received at once in lent buffers.
LENT_BUFFERS_MAX: Final = 8
ACCEPT_BURST: Final = 64
SWEEP_SECONDS: Final = 1.0
# Handshakes in one iteration of the loop, before others get a turn.
HANDSHAKES_SECONDS_MAX: Final = 0.005
# Connections that receive within this time of each other are served in one loop iteration.
ALONE_SECONDS: Final = 0.0002
# How long a connection that is refused by a quota stays open. Each takes a descriptor.
REFUSED_SECONDS_MAX: Final = 1.0
# Out of descriptors: accepting again at once would only spin.
ACCEPT_PAUSE_SECONDS: Final = 0.2
# Descriptors reserved for the node: a sync that cannot open a directory looks like a failed
# disk, and the database needs some too.
RESERVED_DESCRIPTORS: Final = 64


@dataclass(frozen=True, slots=True)
class Limits:
    frame_bytes_max: int
    connections_max: int
    connections_per_ip_max: int
    # Addresses for which another number counts.
    connections_per_ip_overrides: Mapping[str, int]
    idle_seconds_max: float
    request_bytes_max: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address that one listener is bound to."""

    name: str
    host: str
    port: int


Dispatch = Callable[[Connection, memoryview], Pieces | Pending]


class Server:
    def __init__(
        self, dispatch: Dispatch, limits: Limits, accept_rate: AcceptRate | None = None
    ) -> None:
        self.dispatch = dispatch
        # May be replaced at any time.
        self.limits = limits
        self._accept_rate = accept_rate
        self.frame_bytes_max = limits.frame_bytes_max
        self.buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self._spare_buffers: list[memoryview] = []
        self._lent_buffers = 0
        self.memory = RequestMemory(limits.request_bytes_max)
        self.turns = ClientTurns()
        self.receiver: Receiver = LoopReceiver()
        self.connections: set[Connection] = set()
        self.endpoints: list[Endpoint] = []
        # Called with every new connection, before anything is received, and with a closed one
        # that has a session.
        self.on_accepted: Callable[[Connection], None] = lambda connection: None
        self.on_session_ended: Callable[[Connection], None] = lambda connection: None
        # How long the next connection of an address would have to wait. It is refused then.
        self.connection_wait: Callable[[str], float] = lambda ip: 0.0
        # Connections with replies to send before the loop waits again.
        self._to_flush: list[Connection] = []
        self._last_received: Connection | None = None
        self._last_received_at = 0.0
        self._per_ip: Counter[str] = Counter()
        self._listening: list[tuple[socket.socket, str]] = []
        # By listener, for those that speak TLS.
        self._tls: dict[str, Identity] = {}
        self._handshakes: deque[TlsConnection] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        # Closed when no descriptor is left, so that a client can be accepted and refused.
        self._spare_fd = os.open(os.devnull, os.O_RDONLY)
        self._cold_readers = ThreadPoolExecutor(2, thread_name_prefix="cold-read")

    # -- listening ------------------------------------------------------------------

    def bind(self, name: str, host: str, port: int, tls: Identity | None = None) -> Endpoint:
        """Bind the port; no connection is accepted before `start`."""
        try:
            info = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except socket.gaierror as error:
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        sock = socket.socket(info[0], socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        try:
            sock.bind(info[4])
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise StartError(_bind_problem(host, port, error)) from None
        endpoint = Endpoint(name, host, sock.getsockname()[1])
        self._listening.append((sock, name))
        if tls is not None:
            self._tls[name] = tls
        self.endpoints.append(endpoint)
        return endpoint

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.receiver = start_receiving(loop, self.frame_bytes_max)
        for sock, name in self._listening:
            loop.add_reader(sock.fileno(), self._accept, sock, name)
        self.spawn(self._sweep())

    def _accept(self, listening: socket.socket, name: str) -> None:
        descriptors_max = _descriptors_for_clients()
        for _ in range(ACCEPT_BURST):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                self._turn_one_away(listening, name)
                return
            # The kernel hands out the lowest free number, so a high one means that few are left.
            if sock.fileno() >= descriptors_max:
                sock.close()
                self._pause_without_descriptors(listening, name)
                return
            self._admit(sock, name, address)
            if self._accept_rate is not None:
                wait = self._accept_rate.count(name, asyncio.get_running_loop().time())
                if wait > 0:
                    log.debug("%s accepts nothing for %.1f s: the rate is reached", name, wait)
                    self._pause(listening, name, wait)
                    return

    def _turn_one_away(self, listening: socket.socket, name: str) -> None:
        if self._spare_fd >= 0:
            os.close(self._spare_fd)
            # Not ours any more, whatever happens: the number may be reused.
            self._spare_fd = -1
        try:
            listening.accept()[0].close()
        except OSError as error:
            log.debug("no connection left to refuse: %s", error)
        try:
            self._spare_fd = os.open(os.devnull, os.O_RDONLY)
        except OSError as error:
            log.debug("no spare descriptor: %s", error)
        self._pause_without_descriptors(listening, name)

    def _pause_without_descriptors(self, listening: socket.socket, name: str) -> None:
        log.warning("out of file descriptors: refusing connections on %s for a moment", name)
        self._pause(listening, name, ACCEPT_PAUSE_SECONDS)

    def _pause(self, listening: socket.socket, name: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        loop.call_later(seconds, self._accept_again, listening, name)

    def _accept_again(self, listening: socket.socket, name: str) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening, name)

    def _admit(self, sock: socket.socket, name: str, address: tuple[Any, ...]) -> None:
        ip = str(address[0])
        if len(self.connections) >= self.limits.connections_max:
            log.warning("refused %s: max.connections=%d", ip, self.limits.connections_max)
            sock.close()
            return
        limits = self.limits
        per_ip_max = limits.connections_per_ip_overrides.get(ip, limits.connections_per_ip_max)
        if self._per_ip[ip] >= per_ip_max:
            log.warning("refused %s: max.connections.per.ip=%d", ip, per_ip_max)
            sock.close()
            return
        wait = self.connection_wait(ip)
        if wait > 0:
            log.debug("refused %s: it opens connections too fast", ip)
            # Later: a client that is refused at once tries again at once.
            delay = min(wait, REFUSED_SECONDS_MAX)
            asyncio.get_running_loop().call_later(delay, sock.close)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._per_ip[ip] += 1
        now = asyncio.get_running_loop().time()
        peer = f"{ip}:{address[1]}"
        tls = self._tls.get(name)
        if tls is None:
            connection = Connection(self, sock, listener=name, peer=peer, now=now)
        else:
            connection = TlsConnection(self, sock, tls, listener=name, peer=peer, now=now)
        self.connections.add(connection)
        self.on_accepted(connection)

    # -- handshakes -----------------------------------------------------------------

    @cached_property
    def tls_memory(self) -> memoryview:
        return memoryview(bytearray(RECEIVED_BYTES_MAX))

    def shake_hands_soon(self, connection: TlsConnection) -> None:
        if not self._handshakes:
            asyncio.get_running_loop().call_soon(self._shake_hands)
        self._handshakes.append(connection)

    def _shake_hands(self) -> None:
        """A few: each computes for a part of a millisecond, and thousands may come at once."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + HANDSHAKES_SECONDS_MAX
        while self._handshakes:
            self._handshakes[0].shake_hands()
            self._handshakes.popleft()
            if self._handshakes and loop.time() > ends_at:
                loop.call_soon(self._shake_hands)
                return

    # -- what connections need from us ----------------------------------------------

    def is_alone(self, connection: Connection) -> bool:
        now = connection.received_at
        is_alone = connection is self._last_received or now - self._last_received_at > ALONE_SECONDS
        self._last_received, self._last_received_at = connection, now
        return is_alone

    def lend_buffer(self) -> memoryview | None:
        if self._lent_buffers == LENT_BUFFERS_MAX:
            return None
        self._lent_buffers += 1
        lent = self.buffer
        # The buffer that was returned last is most likely still in the processor's cache.
        if self._spare_buffers:
            self.buffer = self._spare_buffers.pop()
        else:
            self.buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        return lent

    def return_buffer(self, buffer: memoryview) -> None:
        self._lent_buffers -= 1
        self._spare_buffers.append(buffer)

    def flush_soon(self, connection: Connection) -> None:
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._to_flush.append(connection)

    def flush_with_others(self, connection: Connection) -> None:
        self.flush_soon(connection)
        if len(self._to_flush) >= FLUSHED_TOGETHER:
            self._flush_all()

    def _flush_all(self) -> None:
        to_flush, self._to_flush = self._to_flush, []
        for connection in to_flush:
            try:
                connection.flush()
            except Exception:
                # As with a request: a bug must not make other clients wait.
                log.exception("closing %s: reply failed", connection.peer)
                connection.close()

    def forget(self, connection: Connection) -> None:
        if connection is self._last_received:
            self._last_received = None
        self.connections.discard(connection)
        if connection.session is not None:
            self.on_session_ended(connection)
        ip = connection.address
        self._per_ip[ip] -= 1
        if self._per_ip[ip] <= 0:
            del self._per_ip[ip]

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def run_blocking(self, call: Callable[[], bool]) -> "asyncio.Future[bool]":
        return asyncio.get_running_loop().run_in_executor(self._cold_readers, call)

    # -- deadlines ------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            # In a separate function: its variables do not keep a connection alive until the next
            # sweep.
            self._close_overdue(asyncio.get_running_loop().time())

    def _close_overdue(self, now: float) -> None:
        for connection in list(self.connections):
            if isinstance(connection, TlsConnection) and connection.handshake_overdue(now):
                connection.close_unfinished()
                continue
            reason = overdue(
                connection,
                now,
                idle_seconds_max=self.limits.idle_seconds_max,
                is_memory_short=self.memory.is_short,
            )
            if reason is not None:
                connection.close(reason)

    # -- the end --------------------------------------------------------------------

    async def stop(self) -> None:
        loop = asyncio.get_running_loop()
        for sock, _ in self._listening:
            loop.remove_reader(sock.fileno())
            sock.close()
        self._listening.clear()
        for connection in list(self.connections):
            connection.close()
        self.receiver.close()
        # What has just been spawned begins: a task that is cancelled before would never close the
        # coroutine that it was made with.
        await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cold_readers.shutdown(wait=True)
        if self._spare_fd >= 0:
            os.close(self._spare_fd)


def _descriptors_for_clients() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft < 0 else max(soft - RESERVED_DESCRIPTORS, soft // 2)


def _bind_problem(host: str, port: int, error: OSError) -> str:
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"cannot listen on {where}: the port is in use. "
            "Stop the other program, or choose another port (port 0 picks a free one)."
        )
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: permission denied (ports below 1024 need root)."
    return f"cannot listen on {where}: {error.strerror}"
