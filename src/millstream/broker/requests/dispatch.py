"""From a frame to its handler and back to bytes.

Most handlers are `handle(broker, request, body) -> Struct`, or a coroutine of one; they
live in `handlers/<api>.py` and are imported when first asked for. Produce, Fetch and
OffsetCommit have their own codecs and see the frame itself. Handlers translate; deciding
is done below them.
"""

import importlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis import APIS, ApiKey
from millstream.wire.cursor import Cursor
from millstream.wire.headers import (
    RequestHeader,
    finish_frame,
    read_request_header,
    response_header,
)
from millstream.wire.messages import Struct, request_reader, response_writer

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

Handler = Callable[["Broker", Request, Struct], Struct | Coroutine[Any, Any, Struct]]
FrameHandler = Callable[["Broker", Request, Cursor], Pieces | Pending]

_frame_handlers: dict[int, FrameHandler] = {}
_handlers: dict[int, Handler] = {}


def dispatch(broker: "Broker", connection: Connection, frame: memoryview) -> Pieces | Pending:
    # What is checked below was checked for the request that left it; what can come out
    # otherwise the next time is in its admission, which is of this generation.
    shortcut = connection.shortcut
    if shortcut is not None and shortcut.generation == broker.generation.number:
        reply = shortcut.answer(connection, frame)
        if reply is not None:
            return reply
    cursor = Cursor(frame)
    header = read_request_header(cursor)
    api = APIS.get(header.api_key)
    if api is None:
        raise ProtocolError(f"unknown API key {header.api_key} (version {header.version})")
    if not api.lowest_listed <= header.version <= api.max_version:
        if header.api_key == ApiKey.API_VERSIONS:
            return _unsupported_api_versions(broker, header)
        raise ProtocolError(f"{api.key.name} version {header.version} is not supported")
    connection.client_id = header.client_id
    request = Request(header, connection)
    broker.requests[header.api_key] = broker.requests.get(header.api_key, 0) + 1
    frame_handler = _frame_handlers.get(header.api_key)
    if frame_handler is not None:
        return frame_handler(broker, request, cursor)
    if header.api_key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT):
        return _load_frame_handler(header.api_key)(broker, request, cursor)
    # The frame lies in the buffer that all connections share; these handlers may keep
    # parts of it beyond their first await.
    cursor = _copied(cursor)
    body = request_reader(header.api_key, header.version)(cursor)
    handler = _handlers.get(header.api_key) or _load_handler(header.api_key)
    answer = handler(broker, request, body)
    if isinstance(answer, Struct):
        return _encode(header, answer)
    return Pending(_encode_later(header, answer), gate=header.api_key in _EFFECT_AFTER_WAIT)


# Requests whose effect comes after a wait; the connection's next request must see it.
_EFFECT_AFTER_WAIT = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.METADATA,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    }
)


def _copied(cursor: Cursor) -> Cursor:
    return Cursor(memoryview(bytes(cursor.data)), cursor.position)


def _load_frame_handler(api_key: int) -> FrameHandler:
    module = importlib.import_module(f"millstream.broker.handlers.{ApiKey(api_key).name.lower()}")
    handler: FrameHandler = module.handle
    _frame_handlers[api_key] = handler
    return handler


def _load_handler(api_key: int) -> Handler:
    module = importlib.import_module(f"millstream.broker.handlers.{ApiKey(api_key).name.lower()}")
    handler: Handler = module.handle
    _handlers[api_key] = handler
    return handler


def _encode(header: RequestHeader, answer: Struct) -> Pieces:
    out = response_header(header)
    response_writer(header.api_key, header.version)(out, answer)
    return [finish_frame(out)]


async def _encode_later(header: RequestHeader, answer: Coroutine[Any, Any, Struct]) -> Pieces:
    return _encode(header, await answer)


def _unsupported_api_versions(broker: "Broker", header: RequestHeader) -> Pieces:
    """KIP-511: answer a version from the future in version 0, with the list to choose from."""
    from millstream.broker.handlers.api_versions import listed_versions

    old = RequestHeader(header.api_key, 0, header.correlation_id, None)
    return _encode(
        old,
        Struct(error_code=KafkaCode.UNSUPPORTED_VERSION, api_keys=listed_versions()),
    )
