"""One blocking connection to one broker, and the idle ones kept for the next task.

Spark's Python workers are reused from task to task, so the pool at module level saves a
connection and a version exchange per task. A connection that failed is closed, never
put back.
"""

import atexit
import os
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from typing import Final, TypeVar

from millstream import __version__
from millstream.errors import KafkaCode, ProtocolError
from millstream.spark.failure import SourceError
from millstream.spark.security import Security, log_in, tls_refusal, wrap_tls
from millstream.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, write_request_header
from millstream.wire.message import Api, Message, Request

M = TypeVar("M", bound=Message)
CLIENT_ID: Final = "millstream-spark"
CONNECT_SECONDS_MAX: Final = 10.0
# Kept per broker and process; a task holds one connection to a broker at a time.
IDLE_MAX: Final = 4
# A broker closes connections that were quiet for ten minutes; ours are given up before.
IDLE_SECONDS_MAX: Final = 240.0
BUFFER_BYTES_MIN: Final = 64 << 10
# What one sendmsg may gather.
PIECES_MAX: Final = 512
_RESPONSE_BYTES_MAX: Final = 1 << 30
# How TLS begins to say that it was not spoken to in TLS; no answer is that large.
_TLS_ALERT: Final = 0x1503
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Idle:
    process_id: int = 0
    connections: dict[tuple[Address, Security], list["Connection"]] = field(default_factory=dict)


_idle = _Idle()


class Connection:
    def __init__(self, address: Address, security: Security) -> None:
        self.address = address
        self.security = security
        self.last_used = time.monotonic()
        self._correlation_id = 0
        self._answer_count = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._buffer = bytearray()
        self._sock: socket.socket = socket.create_connection(
            (address.host, address.port), timeout=CONNECT_SECONDS_MAX
        )
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.uses_tls:
                self._sock = wrap_tls(self._sock, security, address.host)
            if security.uses_sasl:
                log_in(security, self._exchange)
            self._ask_versions()
        except ssl.SSLError as failed:
            self._sock.close()
            raise tls_refusal(failed) or failed from failed
        except BaseException:
            self._sock.close()
            raise

    def _ask_versions(self) -> None:
        # By this name a Millstream node knows who may be told of its own requests.
        request = ApiVersionsRequest(
            client_software_name="millstream", client_software_version=__version__
        )
        answer = self._versions_answer(3, request) or self._versions_answer(0, request)
        assert answer is not None
        for row in answer.api_keys:
            self._versions[row.api_key] = (row.min_version, row.max_version)

    def _versions_answer(
        self, version: int, request: ApiVersionsRequest
    ) -> ApiVersionsResponse | None:
        """None when the broker does not know this version; then it answers as version 0."""
        body = bytearray()
        write_request_header(body, self._next_header(request.api.key, version))
        request_writer(ApiVersionsRequest, version)(body, request)
        self._send(body)
        cursor = self._receive()
        code = int.from_bytes(cursor.data[cursor.position : cursor.position + 2], "big")
        if version > 0 and code == KafkaCode.UNSUPPORTED_VERSION:
            return None
        return response_reader(ApiVersionsRequest, version)(cursor)

    def offers(self, api: Api) -> bool:
        """Whether the broker lists a request, its own ones included."""
        return api.key in self._versions

    def version_of(self, api: Api, newest: int = 32767) -> int:
        """The newest version both sides know, or -1."""
        low, high = self._versions.get(api.key, (0, -1))
        version = min(high, api.max_version, newest)
        return version if version >= max(low, api.min_version) else -1

    def ask(self, request: Request[M], newest: int = 32767, timeout: float = 30) -> M:
        """One request and its answer; OSError when the connection breaks."""
        api, kind = request.api, type(request)
        version = self.version_of(api, newest)
        if version < 0:
            raise ProtocolError(f"{self.address} does not offer {api.name} in a version we know")
        body = bytearray()
        request_writer(kind, version)(body, request)
        self.send(api, version, body)
        return response_reader(kind, version)(self.receive(api, version, timeout))

    def send(self, api: Api, version: int, *parts: bytes | bytearray | memoryview) -> None:
        """Send a request whose body is already encoded, in pieces that are not joined."""
        head = bytearray()
        write_request_header(head, self._next_header(api.key, version))
        self._send(head, *parts)

    def receive(self, api: Api, version: int, timeout: float) -> Cursor:
        """The body of the answer to the oldest request that has none yet.

        It is a view of the connection's own buffer, good until the next answer.
        """
        self._sock.settimeout(timeout)
        cursor = self._receive()
        if api.is_flexible(version):
            cursor.skip_tags()
        return cursor

    def close(self) -> None:
        self._sock.close()

    def _next_header(self, api_key: int, version: int) -> RequestHeader:
        self._correlation_id += 1
        return RequestHeader(api_key, version, self._correlation_id, CLIENT_ID)

    def _send(self, *parts: bytes | bytearray | memoryview) -> None:
        size = sum(len(part) for part in parts)
        self._sock.settimeout(CONNECT_SECONDS_MAX * 3)
        if size < 1 << 16:
            self._sock.sendall(b"".join((_SIZE.pack(size), *parts)))
            return
        if isinstance(self._sock, ssl.SSLSocket):
            self._sock.sendall(_SIZE.pack(size))
            for part in parts:
                self._sock.sendall(part)
        else:
            pieces = (_SIZE.pack(size), *parts)
            self._send_gathered([memoryview(piece) for piece in pieces])

    def _send_gathered(self, views: list[memoryview]) -> None:
        """All pieces in as few calls as the socket takes."""
        first = 0
        while first < len(views):
            taken = self._sock.sendmsg(views[first : first + PIECES_MAX])
            while first < len(views) and taken >= len(views[first]):
                taken -= len(views[first])
                first += 1
            if taken:
                views[first] = views[first][taken:]

    def _receive(self) -> Cursor:
        (size,) = _SIZE.unpack(self._receive_exactly(4))
        if size >> 16 == _TLS_ALERT:
            raise SourceError(
                "TLS_THERE", f"{self.address} speaks TLS. See 'kafka.security.protocol'"
            )
        if not 4 <= size <= _RESPONSE_BYTES_MAX:
            raise ProtocolError(f"{self.address} announced an answer of {size} bytes")
        cursor = Cursor(self._receive_exactly(size))
        cursor.int32()
        self._answer_count += 1
        self.last_used = time.monotonic()
        return cursor

    def _receive_exactly(self, size: int) -> memoryview:
        if size > len(self._buffer):
            # Grown for good: new pages for every answer would cost more than the copy.
            self._buffer = bytearray(max(size, BUFFER_BYTES_MIN))
        data = memoryview(self._buffer)[:size]
        filled = 0
        while filled < size:
            count = self._sock.recv_into(data[filled:])
            if count == 0:
                hint = "" if self._answer_count > 1 else _hint(self.security)
                raise ConnectionResetError(f"{self.address} closed the connection{hint}")
            filled += count
        return data

    def _exchange(self, api: int, version: int, body: bytes) -> memoryview:
        """For SASL, whose APIs come before the table of versions."""
        self._correlation_id += 1
        client = CLIENT_ID.encode()
        head = _HEADER.pack(api, version, self._correlation_id, len(client)) + client
        self._send(head, body)
        cursor = self._receive()
        return cursor.data[cursor.position :]


def _hint(security: Security) -> str:
    """Why a connection may be closed before it answered anything; only what a broker offers
    is told to everybody."""
    if security.uses_tls and not (security.keystore or security.keystore_pem):
        return " (perhaps it wants a certificate: 'kafka.ssl.keystore.location')"
    if not security.uses_tls and not security.uses_sasl:
        return " (perhaps it wants more than 'kafka.security.protocol'='PLAINTEXT')"
    return ""


@atexit.register
def close_idle() -> None:
    """Say goodbye; a process that ends may have some left."""
    if _idle.process_id == os.getpid():
        for waiting in _idle.connections.values():
            for connection in waiting:
                connection.close()
        _idle.connections = {}


def connect(address: Address, security: Security) -> Connection:
    """An idle connection, or a new one. Give it back with `release`, or close it."""
    if _idle.process_id != os.getpid():
        # Sockets of the process that forked this one are not ours to use.
        _idle.process_id = os.getpid()
        _idle.connections = {}
    waiting = _idle.connections.get((address, security), [])
    while waiting:
        connection = waiting.pop()
        if time.monotonic() - connection.last_used < IDLE_SECONDS_MAX:
            return connection
        connection.close()
    return Connection(address, security)


def release(connection: Connection) -> None:
    """Keep a connection that has no answer outstanding."""
    waiting = _idle.connections.setdefault((connection.address, connection.security), [])
    if len(waiting) >= IDLE_MAX:
        connection.close()
    else:
        waiting.append(connection)
