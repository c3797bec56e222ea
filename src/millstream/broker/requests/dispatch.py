"""From a frame to its handler and back to bytes.

Handlers are in `handlers/<api>.py` and are imported on first use (see `routes`). They
translate; the layers below them decide.
"""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.requests.request import Request
from millstream.broker.requests.routes import Route, listed_versions, load_route, served
from millstream.broker.requests.services import Services
from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.codec import request_reader, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import (
    RequestHeader,
    finish_frame,
    read_request_header,
    response_header,
)
from millstream.wire.message import Api, Message


class Dispatcher:
    """Finds the handler of a frame, and the parts of the node that it uses."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._generation = services.node.partitions.generation
        self._counts = services.counts
        self._routes: dict[int, Route] = {}

    def dispatch(self, connection: Connection, frame: memoryview) -> Pieces | Pending:
        # The checks below were made for the request that set the shortcut. Those that may have
        # another result now are in its admission, which is of this generation.
        shortcut = connection.shortcut
        if shortcut is not None and shortcut.generation == self._generation.number:
            reply = shortcut.answer(connection, frame)
            if reply is not None:
                return reply
        cursor = Cursor(frame)
        header = read_request_header(cursor)
        route = self._routes.get(header.api_key) or self._find_route(header)
        api = route.api
        if not api.min_listed <= header.version <= api.max_version:
            if api is ApiVersionsRequest.api:
                return _unsupported_api_versions(header)
            raise ProtocolError(f"{api.name.upper()} version {header.version} is not supported")
        connection.client_id = header.client_id
        request = Request(header, connection)
        self._counts[header.api_key] = self._counts.get(header.api_key, 0) + 1
        if route.handle_frame is not None:
            return route.handle_frame(request, cursor)
        assert route.handle is not None
        # The frame is in the buffer that all connections share; these handlers may keep
        # parts of it beyond their first await.
        body = request_reader(api.request, header.version)(_copied(cursor))
        answer = route.handle(request, body)
        if isinstance(answer, Message):
            return _encode(api, header, answer)
        return Pending(_encode_later(api, header, answer), gate=route.holds_next_request)

    def _find_route(self, header: RequestHeader) -> Route:
        api = served().get(header.api_key)
        if api is None:
            raise ProtocolError(f"unknown API key {header.api_key} (version {header.version})")
        return self._routes.setdefault(header.api_key, load_route(api, self._services))


def _copied(cursor: Cursor) -> Cursor:
    return Cursor(memoryview(bytes(cursor.data)), cursor.position)


def _encode(api: Api, header: RequestHeader, answer: Message) -> Pieces:
    out = response_header(header)
    response_writer(api.request, header.version)(out, answer)
    return [finish_frame(out)]


async def _encode_later(
    api: Api, header: RequestHeader, answer: Coroutine[Any, Any, Message]
) -> Pieces:
    return _encode(api, header, await answer)


def _unsupported_api_versions(header: RequestHeader) -> Pieces:
    """KIP-511: answer an unknown version in version 0, with the supported versions."""
    old = RequestHeader(header.api_key, 0, header.correlation_id, None)
    return _encode(
        ApiVersionsRequest.api,
        old,
        ApiVersionsResponse(error_code=KafkaCode.UNSUPPORTED_VERSION, api_keys=listed_versions()),
    )
