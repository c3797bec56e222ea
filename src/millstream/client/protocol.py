"""One connection's side of the protocol, without the connection: frames, correlation, versions.

A driver sends the frames that are made here, and hands over those it receives. Nodes answer in
the order of the requests, so several may be under way at once.
"""

import struct
from collections import deque
from typing import Final, TypeVar

from millstream import __version__
from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import (
    SIZE_BYTES,
    RequestHeader,
    finish_frame,
    write_request_header,
)
from millstream.wire.message import Api, Message, Request
from millstream.wire.vendor import CLIENT_SOFTWARE_NAME

M = TypeVar("M", bound=Message)

NEWEST: Final = 32767
# Far above what anybody asks for; a size beyond it is not Kafka's protocol.
ANSWER_BYTES_MAX: Final = 1 << 30
_SIZE: Final = struct.Struct(">i")
# How TLS begins to say that it was not spoken to in TLS.
_TLS_ALERT: Final = 0x1503

# By this name a Millstream node knows to whom it may list its own requests.
VERSIONS_REQUEST: Final = ApiVersionsRequest(
    client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__
)
# The oldest that carries a name; and the one that a node answers in if it does not know that.
VERSIONS_TRIED: Final = (3, 0)


class SpeaksTls(ProtocolError):
    """The other side wants TLS."""


class Dialogue:
    """The requests of one connection, and whose answer comes next."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        # Correlation id of each request without an answer, and whether tags follow the header.
        self._unanswered: deque[tuple[int, bool]] = deque()

    def begin(self, api: Api, version: int) -> bytearray:
        """A frame with its header, to which the caller adds the body and then its size."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        out = bytearray(SIZE_BYTES)
        header = RequestHeader(api.key, version, self._correlation_id, self._client_id)
        write_request_header(out, header)
        self._unanswered.append((self._correlation_id, version >= api.response_tags_from))
        return out

    def frame(self, request: Request[Message], version: int) -> bytearray:
        """A whole request, ready to be sent."""
        out = self.begin(request.api, version)
        request_writer(type(request), version)(out, request)
        return finish_frame(out)

    def open_answer(self, frame: memoryview) -> Cursor:
        """What follows the header of the next answer, `frame` without its size."""
        correlation_id, has_tags = self._unanswered.popleft()
        cursor = Cursor(frame)
        if cursor.int32() != correlation_id:
            raise ProtocolError("an answer to another request")
        if has_tags:
            cursor.skip_tags()
        return cursor


def answer_size(head: memoryview | bytes) -> int:
    """The size of the answer that these four bytes announce."""
    size: int = _SIZE.unpack(head)[0]
    if size >> 16 == _TLS_ALERT:
        raise SpeaksTls("the other side speaks TLS")
    if not SIZE_BYTES <= size <= ANSWER_BYTES_MAX:
        raise ProtocolError(f"an answer of {size} bytes")
    return size


def read_answer(request: type[Request[M]], version: int, cursor: Cursor) -> M:
    return response_reader(request, version)(cursor)


class Versions:
    """What a node offers, by its own word."""

    def __init__(self, answer: ApiVersionsResponse) -> None:
        self._offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def offers(self, api: Api) -> bool:
        return api.key in self._offered

    def newest(self, api: Api, limit: int = NEWEST) -> int:
        """The newest version that both sides know, at most `limit`; -1 for none."""
        low, high = self._offered.get(api.key, (0, -1))
        version = min(high, api.max_version, limit)
        return version if version >= max(low, api.min_version) else -1


def read_versions(cursor: Cursor, version: int) -> Versions | None:
    """None where the node does not know this version of the question (KIP-511)."""
    position = cursor.position
    if version > 0 and cursor.int16() == KafkaCode.UNSUPPORTED_VERSION:
        return None
    cursor.position = position
    return Versions(response_reader(ApiVersionsRequest, version)(cursor))
