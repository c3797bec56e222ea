"""From a frame to its handler and back to bytes.

Handlers are in `handlers/<api>.py` and are imported on first use (see `routes`). They
translate; the layers below them decide.

An unknown API, a version that is not served, and bytes that are no request raise ProtocolError,
which closes the connection. Only ApiVersions is answered in a version that it does not have.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from millstream.broker.network.connection import Connection, kept_frame
from millstream.broker.network.replies import Pending, Pieces, settled
from millstream.broker.requests.request import Request
from millstream.broker.requests.routes import (
    Route,
    import_handler,
    is_imported,
    listed_versions,
    load_route,
    served,
    served_api,
)
from millstream.broker.requests.services import Services
from millstream.broker.requests.turns import stop_if_abandoned
from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis import Listed
from millstream.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest
from millstream.wire.codec import request_reader, response_writer
from millstream.wire.cursor import Cursor, TooManyElements
from millstream.wire.headers import (
    RequestHeader,
    finish_frame,
    read_request_header,
    response_header,
)
from millstream.wire.message import Api, Message
from millstream.wire.output import PausingOutput

_BEFORE_AUTHENTICATION: Final = frozenset(
    request.api.key
    for request in (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
)
# A request with more is read in a thread: a thousand elements take five milliseconds.
_FEW_ELEMENTS: Final = 1_000


class Dispatcher:
    """Finds the handler of a frame, and the parts of the node that it uses."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._generation = services.node.partitions.generation
        self._counts = services.counts
        self._routes: dict[int, Route] = {}
        # Handlers that are being imported, by API key.
        self._imports: dict[int, asyncio.Task[None]] = {}

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
        route = self._routes.get(header.api_key)
        if route is None:
            one = served().get(header.api_key)
            if one is None:
                raise ProtocolError(f"unknown API key {header.api_key} (version {header.version})")
            importing = self._import_of(one)
            if importing is not None:
                copied = memoryview(bytearray(frame))
                return Pending(self._answer_first(connection, importing, copied), gate=True)
            route = self._add_route(one)
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
        # These handlers may keep parts of the frame beyond their first await.
        data = kept_frame(cursor.data)
        read = request_reader(api.request, header.version)
        try:
            body = read(Cursor(data, cursor.position, _FEW_ELEMENTS))
        except TooManyElements:
            if route.names_few:
                raise
            large = partial(
                read, Cursor(data, cursor.position, each=self._services.turns.pace(request))
            )
            return Pending(self._answer_large(route, request, large, len(data)), gate=True)
        if self._services.turns.long_answers.must_wait(request):
            return Pending(self._answer_in_line(route, request, body, len(data)), gate=True)
        answer = self._answer(route, request, body)
        if isinstance(answer, Message):
            return _encode(api, header, answer)
        return Pending(self._encode_later(api, request, answer), gate=route.holds_next_request)

    def dispatch_sasl(self, connection: Connection, frame: memoryview) -> Pieces | Pending:
        """For a client that has yet to prove who it is, or to do so again: nothing else."""
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        if api_key not in _BEFORE_AUTHENTICATION:
            api = served().get(api_key)
            name = f"API key {api_key}" if api is None else api.name.upper()
            raise ProtocolError(f"{name} without authentication, or after the session expired")
        return self.dispatch(connection, frame)

    def _answer(
        self, route: Route, request: Request, body: Message
    ) -> Message | Coroutine[Any, Any, Message]:
        if route.refuse is not None:
            denied = self._services.permissions.request_denial(request)
            if denied is not None:
                refuse = partial(route.refuse, request, body, denied.code)
                return self._services.turns.in_thread(refuse) if request.is_long else refuse()
        assert route.handle is not None
        return route.handle(request, body)

    async def _answer_large(
        self, route: Route, request: Request, read: Callable[[], Message], size_bytes: int
    ) -> Pieces:
        """`read` decodes a frame of so many bytes, which counts as received until then."""
        assert route.handle is not None
        turns = self._services.turns
        release = request.connection.hold_memory(size_bytes)
        try:
            async with turns.large_request(request):
                stop_if_abandoned(request)
                turns.long_answers.begin(request)
                body = await turns.in_thread(read)
                release()
                try:
                    answer = self._answer(route, request, body)
                    if isinstance(answer, Message):
                        return await self._encode_long(route.api, request, answer)
                    return await self._encode_later(route.api, request, answer)
                finally:
                    turns.free_soon(request, body, *request.prepared)
                    request.prepared = ()
        finally:
            release()
            turns.long_answers.end(request)

    async def _answer_in_line(
        self, route: Route, request: Request, body: Message, size_bytes: int
    ) -> Pieces:
        """The frame had so many bytes, which count as received until it is the request's turn."""
        release = request.connection.hold_memory(size_bytes)
        try:
            async with self._services.turns.long_answers.in_line(request):
                release()
                stop_if_abandoned(request)
                answer = self._answer(route, request, body)
        finally:
            release()
        if isinstance(answer, Message):
            return _encode(route.api, request.header, answer)
        return await self._encode_later(route.api, request, answer)

    async def _encode_later(
        self, api: Api, request: Request, answer: Coroutine[Any, Any, Message]
    ) -> Pieces:
        try:
            message = await answer
            if request.is_long:
                return await self._encode_long(api, request, message)
            return _encode(api, request.header, message)
        finally:
            self._services.turns.long_answers.end(request)

    async def _encode_long(self, api: Api, request: Request, answer: Message) -> Pieces:
        turns = self._services.turns
        try:
            out = PausingOutput(response_header(request.header), turns.pace(request))
            return await turns.in_thread(partial(_encode_into, out, api, request.header, answer))
        finally:
            turns.free_soon(request, answer)

    def _import_of(self, one: Listed) -> "asyncio.Task[None] | None":
        """What requests of this kind wait for; None if their handler is there.

        They wait for one import together. After a restart there may be one from each of hundreds
        of clients: in line, each for a turn of the thread, the last would wait very long, because
        a turn takes several of the loop, which replays logs then."""
        importing = self._imports.get(one.key)
        if importing is None and not is_imported(one):
            importing = self._imports[one.key] = asyncio.create_task(self._import(one))
        return importing

    async def _import(self, one: Listed) -> None:
        try:
            await self._services.turns.in_thread(partial(import_handler, one))
        finally:
            # Not in a callback: a request that finds a task that is done would find it forever.
            del self._imports[one.key]

    async def _answer_first(
        self, connection: Connection, importing: "asyncio.Task[None]", frame: memoryview
    ) -> Pieces:
        """The first request of its kind: what it needs is imported while others are served."""
        # Others wait for it too: a client that goes away does not end it.
        await asyncio.shield(importing)
        if connection.is_closed:
            return []
        answer = self.dispatch(connection, frame)
        # It may take minutes, and this name alone would keep the bytes of the request.
        del frame
        return await settled(answer)

    def _add_route(self, one: Listed) -> Route:
        api = served_api(one.key)
        assert api is not None, "it is listed"
        return self._routes.setdefault(one.key, load_route(api, self._services))


def _encode(api: Api, header: RequestHeader, answer: Message) -> Pieces:
    return _encode_into(response_header(header), api, header, answer)


def _encode_into(out: bytearray, api: Api, header: RequestHeader, answer: Message) -> Pieces:
    response_writer(api.request, header.version)(out, answer)
    return [finish_frame(out)]


def _unsupported_api_versions(header: RequestHeader) -> Pieces:
    """KIP-511: answer an unknown version in version 0, with the supported versions."""
    old = RequestHeader(header.api_key, 0, header.correlation_id, None)
    return _encode(
        ApiVersionsRequest.api,
        old,
        ApiVersionsResponse(error_code=KafkaCode.UNSUPPORTED_VERSION, api_keys=listed_versions()),
    )
