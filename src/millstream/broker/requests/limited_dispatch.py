"""Dispatch while some client has a quota: counts what clients use, and mutes those that exceed it.

As in Kafka, the response leaves at once with the time that the client has to wait, and nothing
is read from its connection for that time. A client with a quota gets no shortcuts, so that
every request comes by here. While there are no quotas at all, none does.
"""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import Any, Final

from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.requests.dispatch import Dispatcher
from millstream.broker.security.quota_use import ClientLimits, ClientQuotas
from millstream.security.quotas import FETCH, PRODUCE, REQUEST_TIME
from millstream.wire.apis.fetch import FetchRequest
from millstream.wire.apis.produce import ProduceRequest
from millstream.wire.cursor import Cursor
from millstream.wire.headers import SIZE_BYTES, RequestHeader, read_request_header
from millstream.wire.message import APIS

_INT32: Final = struct.Struct(">i")
_CORRELATION_BYTES: Final = 4
_PRODUCE_KEY: Final = ProduceRequest.api.key
_FETCH_KEY: Final = FetchRequest.api.key

Finish = Callable[[Pieces], Pieces]


class LimitedDispatcher:
    def __init__(self, dispatcher: Dispatcher, quotas: ClientQuotas) -> None:
        self._dispatcher = dispatcher
        self._quotas = quotas

    def dispatch(self, connection: Connection, frame: memoryview) -> Pieces | Pending:
        header = read_request_header(Cursor(frame))
        limits = self._quotas.of(connection.principal, header.client_id)
        if limits is None or connection.proved_node_id >= 0:
            return self._dispatcher.dispatch(connection, frame)
        connection.shortcut = connection.last_request = None
        wait = 0.0
        if header.api_key == _PRODUCE_KEY:
            wait = limits.use(PRODUCE, SIZE_BYTES + len(frame))
        began = perf_counter()
        reply = self._dispatcher.dispatch(connection, frame)
        connection.shortcut = connection.last_request = None
        wait = max(wait, limits.use(REQUEST_TIME, 100 * (perf_counter() - began)))
        finish = partial(_finish, connection, limits, header, wait)
        if not isinstance(reply, Pending):
            return finish(reply)
        if isinstance(reply.answer, asyncio.Future):
            reply.finish = partial(_finish_future, finish, reply.finish)
            return reply
        return Pending(_finish_later(reply.answer, finish), gate=reply.gate)


def _finish_future(
    finish: Finish,
    inner: "Callable[[asyncio.Future[Any]], Pieces] | None",
    done: "asyncio.Future[Any]",
) -> Pieces:
    return finish(done.result() if inner is None else inner(done))


async def _finish_later(answer: "Coroutine[Any, Any, Pieces]", finish: Finish) -> Pieces:
    return finish(await answer)


def _finish(
    connection: Connection,
    limits: ClientLimits,
    header: RequestHeader,
    wait: float,
    pieces: Pieces,
) -> Pieces:
    if header.api_key == _FETCH_KEY and limits.has(FETCH) and pieces:
        assert isinstance(pieces[0], bytearray)
        size = _INT32.unpack_from(pieces[0])[0]
        wait = max(wait, limits.use(FETCH, SIZE_BYTES + size))
    if wait > 0:
        write_throttle_time(header, pieces, int(wait * 1000))
        connection.mute(wait)
    return pieces


def write_throttle_time(header: RequestHeader, pieces: Pieces, throttle_ms: int) -> None:
    """Into an encoded response, where its API and version have a place for it."""
    if not pieces or not isinstance(pieces[0], bytearray):
        return
    out = pieces[0]
    api = APIS[header.api_key]
    if header.api_key == _PRODUCE_KEY:
        at = len(out) - _INT32.size - (1 if api.is_flexible(header.version) else 0)
        _INT32.pack_into(out, at, throttle_ms)
        return
    response = api.response
    if next(iter(response.declared_fields)) != "throttle_time_ms":
        return
    versions = response.field_versions.get("throttle_time_ms")
    if versions is not None and not versions.includes(header.version):
        return
    at = SIZE_BYTES + _CORRELATION_BYTES + (header.version >= api.response_tags_from)
    # A handler may have written a longer time.
    _INT32.pack_into(out, at, max(_INT32.unpack_from(out, at)[0], throttle_ms))
