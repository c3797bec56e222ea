"""Requests to a node for which the client library has no call."""

import socket
import struct
from types import TracebackType
from typing import Final, TypeVar

from millstream import __version__
from millstream.cli.bootstrap import REQUEST_SECONDS_MAX, check_reachable
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.errors import ProtocolError
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.compact_topic import CompactTopicRequest, CompactTopicResponse
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, write_request_header
from millstream.wire.message import Message, Request
from millstream.wire.vendor import CLIENT_SOFTWARE_NAME

M = TypeVar("M", bound=Message)
_SIZE: Final = struct.Struct(">i")
_RESPONSE_BYTES_MAX: Final = 1 << 26
# The oldest that carries a name, and the last one with the plain header.
_VERSIONS_VERSION: Final = 3
_CLIENT_ID: Final = f"millstream/{__version__}"


class VendorConnection:
    """`with VendorConnection(bootstrap) as connection:`; failures are CommandFailed."""

    def __init__(self, bootstrap: str) -> None:
        host, port = check_reachable(bootstrap)
        self._address = f"{host}:{port}"
        self._sock = socket.create_connection((host, port), timeout=REQUEST_SECONDS_MAX)
        self._keys = self._listed_keys()

    def __enter__(self) -> "VendorConnection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sock.close()

    def compact_topic(self, topic: str, *, is_started: bool) -> CompactTopicResponse:
        """Start compacting a topic, or only hear how that is going."""
        self.require(CompactTopicRequest)
        return self._ask(CompactTopicRequest(topic=topic, is_started=is_started), 0)

    def require(self, request: type[Request[Message]]) -> None:
        """Raises CommandFailed where the node does not have a request of ours."""
        if request.api.key not in self._keys:
            raise CommandFailed(
                f"{self._address} does not offer this: it is no Millstream node, or an older one"
            )

    def _listed_keys(self) -> set[int]:
        wanted = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__
        )
        answer = self._ask(wanted, _VERSIONS_VERSION)
        return {row.api_key for row in answer.api_keys}

    def _ask(self, request: Request[M], version: int) -> M:
        api, kind = request.api, type(request)
        frame = bytearray()
        write_request_header(frame, RequestHeader(api.key, version, 0, _CLIENT_ID))
        request_writer(kind, version)(frame, request)
        try:
            cursor = self._exchange(frame)
            if api.is_flexible(version) and kind is not ApiVersionsRequest:
                cursor.skip_tags()
            return response_reader(kind, version)(cursor)
        except ProtocolError as error:
            raise self._no_sense(error) from None

    def _exchange(self, frame: bytearray) -> Cursor:
        """Send a request, and what follows the header of its response."""
        try:
            self._sock.sendall(_SIZE.pack(len(frame)) + frame)
            (size,) = _SIZE.unpack(self._receive(_SIZE.size))
            if not 4 <= size <= _RESPONSE_BYTES_MAX:
                raise ProtocolError(f"response of {size} bytes")
            return Cursor(memoryview(self._receive(size)), 4)
        except OSError as error:
            raise CommandFailed(
                f"{self._address}: connection lost ({error})", exit_code=ExitCode.UNREACHABLE
            ) from None

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._sock.recv(size - len(parts))
            if not part:
                raise ConnectionError("closed by the node")
            parts += part
        return bytes(parts)

    def _no_sense(self, error: ProtocolError) -> CommandFailed:
        return CommandFailed(f"{self._address} answered what makes no sense: {error}")
