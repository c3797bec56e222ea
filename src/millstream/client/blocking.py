"""One blocking connection to one node.

Requests may be sent ahead of the answers to those before them. After any failure a connection
is of no more use: an answer that was not read would be taken for that of the next request.
"""

import socket
import ssl
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from millstream.client.protocol import (
    NEWEST,
    VERSIONS_REQUEST,
    VERSIONS_TRIED,
    Dialogue,
    SpeaksTls,
    Versions,
    answer_size,
    read_answer,
    read_versions,
)
from millstream.client.security import (
    PLAINTEXT,
    Security,
    SecurityError,
    hint_after_close,
    log_in,
    tls_refusal,
    wrap_tls,
)
from millstream.errors import ProtocolError
from millstream.wire.cursor import Cursor
from millstream.wire.headers import SIZE_BYTES, finish_frame
from millstream.wire.message import Api, Message, Request

M = TypeVar("M", bound=Message)

CONNECT_SECONDS_MAX: Final = 10.0
ANSWER_SECONDS_MAX: Final = 30.0
_SEND_SECONDS_MAX: Final = 30.0
_BUFFER_BYTES_MIN: Final = 64 << 10
# Below this, pieces are joined: one copy costs less than gathering.
_JOINED_BYTES_MAX: Final = 64 << 10
# What one sendmsg may gather.
_PIECES_MAX: Final = 512
_SASL_VERSION: Final = 1

Piece = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connection:
    """Raises OSError when the connection breaks, ProtocolError for what is no answer, and
    SecurityError where trying again will not help."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        security: Security = PLAINTEXT,
        connect_seconds_max: float = CONNECT_SECONDS_MAX,
        login_seconds_max: float = ANSWER_SECONDS_MAX,
    ) -> None:
        """`login_seconds_max` is for each answer before the first request: SASL and versions."""
        self.address = address
        self._login_seconds_max = login_seconds_max
        self.security = security
        self._dialogue = Dialogue(client_id)
        self._answer_count = 0
        # Reused from answer to answer: new pages for each would cost more than the copy.
        self._buffer = bytearray()
        self._sock = socket.create_connection(
            (address.host, address.port), timeout=connect_seconds_max
        )
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.uses_tls:
                self._sock = wrap_tls(self._sock, security, address.host)
            if security.uses_sasl:
                self._log_in()
        except ssl.SSLError as failed:
            self._sock.close()
            raise tls_refusal(failed, security) or failed from failed
        except BaseException:
            self._sock.close()
            raise

    def close(self) -> None:
        self._sock.close()

    def wait_closed(self, timeout_seconds: float) -> bool:
        """Wait until the node closes the connection, which must be idle; False if it has not."""
        self._sock.settimeout(timeout_seconds)
        try:
            while self._sock.recv(1):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    @cached_property
    def versions(self) -> Versions:
        """What the node offers; asked when it is first needed."""
        for version in VERSIONS_TRIED:
            self._send_pieces([self._dialogue.frame(VERSIONS_REQUEST, version)])
            found = read_versions(self.receive(self._login_seconds_max), version)
            if found is not None:
                return found
        raise ProtocolError(f"{self.address} does not say what it offers")

    def ask(
        self,
        request: Request[M],
        newest: int = NEWEST,
        *,
        timeout_seconds: float = ANSWER_SECONDS_MAX,
    ) -> M:
        """One request and its answer, in the newest version that both sides know.

        Bytes in the answer are views of this connection's buffer, good until the next answer.
        """
        version = self.versions.newest(request.api, newest)
        if version < 0:
            name = request.api.name.upper()
            raise ProtocolError(f"{self.address} does not offer {name} in a version we know")
        return self._ask_in(request, version, timeout_seconds)

    def send(self, api: Api, version: int, *body: Piece) -> None:
        """Send a request whose body is encoded already, in pieces that are not joined."""
        head = self._dialogue.begin(api, version)
        finish_frame(head, sum(len(piece) for piece in body))
        self._send_pieces([head, *body])

    def receive(self, timeout_seconds: float = ANSWER_SECONDS_MAX) -> Cursor:
        """The body of the answer to the oldest request that has none yet.

        It is a view of this connection's buffer, good until the next answer.
        """
        self._sock.settimeout(timeout_seconds)
        try:
            size = answer_size(self._receive_exactly(SIZE_BYTES))
            cursor = self._dialogue.open_answer(self._receive_exactly(size))
        except SpeaksTls:
            option = self.security.option("security.protocol")
            raise SecurityError("TLS_THERE", f"{self.address} speaks TLS. See {option}") from None
        except ProtocolError as error:
            raise ProtocolError(f"{self.address}: {error}") from None
        except ssl.SSLError as failed:
            # A broker may look at our certificate only after the handshake (TLS 1.3).
            raise tls_refusal(failed, self.security) or failed from failed
        self._answer_count += 1
        return cursor

    def _ask_in(self, request: Request[M], version: int, timeout_seconds: float) -> M:
        self._send_pieces([self._dialogue.frame(request, version)])
        return read_answer(type(request), version, self.receive(timeout_seconds))

    def _log_in(self) -> None:
        steps = log_in(self.security)
        request = next(steps, None)
        while request is not None:
            answer = self._ask_in(request, _SASL_VERSION, self._login_seconds_max)
            try:
                request = steps.send(answer)
            except StopIteration:
                return

    def _send_pieces(self, pieces: list[Piece]) -> None:
        self._sock.settimeout(_SEND_SECONDS_MAX)
        if len(pieces) == 1:
            self._sock.sendall(pieces[0])
        elif sum(len(piece) for piece in pieces) < _JOINED_BYTES_MAX:
            self._sock.sendall(b"".join(pieces))
        elif isinstance(self._sock, ssl.SSLSocket):
            for piece in pieces:
                self._sock.sendall(piece)
        else:
            self._send_gathered([memoryview(piece) for piece in pieces])

    def _send_gathered(self, views: list[memoryview]) -> None:
        """All pieces in as few calls as the socket takes."""
        first = 0
        while first < len(views):
            taken = self._sock.sendmsg(views[first : first + _PIECES_MAX])
            while first < len(views) and taken >= len(views[first]):
                taken -= len(views[first])
                first += 1
            if taken:
                views[first] = views[first][taken:]

    def _receive_exactly(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(max(size, _BUFFER_BYTES_MIN))
        data = memoryview(self._buffer)[:size]
        filled = 0
        while filled < size:
            count = self._sock.recv_into(data[filled:])
            if count == 0:
                hint = "" if self._answer_count > 1 else hint_after_close(self.security)
                raise ConnectionResetError(f"{self.address} closed the connection{hint}")
            filled += count
        return data
