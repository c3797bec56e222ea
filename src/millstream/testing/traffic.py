"""Every request of a test's broker passes here: it is noted, and gets its fault if it has one.

Requests that repeat are answered without this by a node that is alone; in a test they are not.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from millstream.broker.broker import Broker as Node
from millstream.broker.network.connection import Connection
from millstream.broker.network.output import release_all
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.server import Dispatch
from millstream.broker.requests.routes import listed_versions, served_api
from millstream.errors import ProtocolError
from millstream.lazy_dataclass import dataclass
from millstream.testing.error_answers import error_answer, first_error
from millstream.testing.faults import Fault, Faults, RequestFacts, known_api, normalised
from millstream.testing.older_kafka import OlderKafka
from millstream.wire.codec import request_reader, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import (
    RequestHeader,
    finish_frame,
    read_request_header,
    response_header,
)
from millstream.wire.message import Api, Message

_KEPT_MAX: Final = 10_000
_API_VERSIONS: Final = 18


@dataclass(slots=True)
class SeenRequest:
    api: str
    version: int
    client_id: str
    size_bytes: int
    # The fault that it got.
    fault: str | None
    seen_at: float
    # Until its answer was ready; None while it is not.
    latency_ms: float | None = None
    # The first error in its answer, by Kafka's name.
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    client_id: str
    # Name and version of its library, as far as it says so.
    software: str
    address: str


async def connected_clients(nodes: Iterable[Node]) -> list[ConnectedClient]:
    """In the thread of the nodes."""
    return [
        ConnectedClient(one.client_id or "", one.client_software or "", one.peer)
        for node in nodes
        for one in node.connections
        if one.proved_node_id < 0
    ]


class Traffic:
    def __init__(self, now: Callable[[], float]) -> None:
        self.faults = Faults()
        # Newer requests name topics by their ids.
        self.name_of: Callable[[UUID], str | None] = lambda topic_id: None
        # Set to answer like an older release.
        self.older: OlderKafka | None = None
        self._now = now
        self._seen: deque[SeenRequest] = deque(maxlen=_KEPT_MAX)

    def requests(self, api: str | None = None, client_id: str | None = None) -> list[SeenRequest]:
        """The last ten thousand, in order."""
        wanted = None if api is None else known_api(api)
        return [
            seen
            for seen in tuple(self._seen)
            if (wanted is None or normalised(seen.api) == wanted)
            and (client_id is None or seen.client_id == client_id)
        ]

    def through(self, dispatch: Dispatch) -> Dispatch:
        """The same, with this in front of it."""
        return partial(self._dispatch, dispatch)

    def _dispatch(
        self, dispatch: Dispatch, connection: Connection, frame: memoryview
    ) -> Pieces | Pending:
        # So that the next request comes here as well.
        connection.shortcut = None
        cursor = Cursor(frame)
        header = read_request_header(cursor)
        api = served_api(header.api_key)
        if api is None:
            return dispatch(connection, frame)
        facts = RequestFacts(
            api.name,
            header.client_id or "",
            partial(self._topics, api, header, frame, cursor.position),
        )
        fault = self.faults.choose(facts) if self.faults.rules else None
        seen = SeenRequest(
            _name(api),
            header.version,
            header.client_id or "",
            len(frame),
            None if fault is None else str(fault),
            self._now(),
        )
        self._seen.append(seen)
        answer = self._answer(fault, dispatch, connection, frame, api, header, cursor.position)
        return self._noted(seen, answer, api, header)

    def _answer(
        self,
        fault: Fault | None,
        dispatch: Dispatch,
        connection: Connection,
        frame: memoryview,
        api: Api,
        header: RequestHeader,
        position: int,
    ) -> Pieces | Pending:
        if fault is None and self.older is not None:
            if api.key == _API_VERSIONS:
                return self._versions(self.older, api, header)
            if not self.older.knows(header):
                raise ProtocolError(f"{_name(api)} version {header.version} is too new here")
        if fault is None:
            answer = dispatch(connection, frame)
            connection.shortcut = None
            return answer
        return self._apply(fault, dispatch, connection, frame, api, header, position)

    def _noted(
        self, seen: SeenRequest, answer: Pieces | Pending, api: Api, header: RequestHeader
    ) -> Pieces | Pending:
        """The same answer, of which the request's entry has the time and the error."""
        if isinstance(answer, Pending):
            return Pending(self._noted_later(seen, answer, api, header), gate=answer.gate)
        self._note(seen, answer, api, header)
        return answer

    async def _noted_later(
        self, seen: SeenRequest, pending: Pending, api: Api, header: RequestHeader
    ) -> Pieces:
        pieces = await _ready(pending)
        self._note(seen, pieces, api, header)
        return pieces

    def _note(self, seen: SeenRequest, pieces: Pieces, api: Api, header: RequestHeader) -> None:
        seen.latency_ms = (self._now() - seen.seen_at) * 1000
        seen.error = first_error(pieces, api, header)

    def _versions(self, older: OlderKafka, api: Api, header: RequestHeader) -> Pieces:
        answer = older.versions(header, listed_versions())
        # A version that is too new is answered in the first one, which everyone can read.
        version = header.version if older.knows(header) else 0
        return _encoded(api, replace(header, version=version), answer)

    def _apply(
        self,
        fault: Fault,
        dispatch: Dispatch,
        connection: Connection,
        frame: memoryview,
        api: Api,
        header: RequestHeader,
        position: int,
    ) -> Pieces | Pending:
        if fault.drops_connection and fault.after_bytes:
            copied = bytearray(frame)
            return Pending(self._broken_off(fault.after_bytes, dispatch, connection, copied))
        if fault.drops_connection:
            raise ProtocolError("dropped by a fault of the test")
        if fault.error is not None:
            body = request_reader(api.request, header.version)(Cursor(frame, position))
            return _encoded(api, header, error_answer(api, body, header.version, fault.error))
        # The frame's memory is reused by then; batches are stamped in place, so it is writable.
        late = self._later(fault.delay_ms / 1000, dispatch, connection, bytearray(frame))
        return Pending(late, gate=True)

    async def _broken_off(
        self, count: int, dispatch: Dispatch, connection: Connection, frame: bytearray
    ) -> Pieces:
        """The first bytes of the answer; the connection ends behind them."""
        pieces = await self._later(0, dispatch, connection, frame)
        sent = b"".join(
            bytes(each) for each in pieces if isinstance(each, bytes | bytearray | memoryview)
        )
        release_all(pieces)
        asyncio.get_running_loop().call_soon(
            connection.close_when_sent, "dropped by a fault of the test"
        )
        return [sent[:count]]

    def _topics(
        self, api: Api, header: RequestHeader, frame: memoryview, position: int
    ) -> set[str]:
        """All topics that a request names, wherever."""
        body = request_reader(api.request, header.version)(Cursor(frame, position))
        found = _names(body)
        names = (self.name_of(each) if isinstance(each, UUID) else each for each in found)
        return {name for name in names if name}

    async def _later(
        self, seconds: float, dispatch: Dispatch, connection: Connection, frame: bytearray
    ) -> Pieces:
        await asyncio.sleep(seconds)
        answer = dispatch(connection, memoryview(frame))
        return await _ready(answer) if isinstance(answer, Pending) else answer


async def _ready(pending: Pending) -> Pieces:
    if not isinstance(pending.answer, asyncio.Future):
        return await pending.answer
    done = pending.answer
    await asyncio.wait([done])
    pieces: Pieces = done.result() if pending.finish is None else pending.finish(done)
    return pieces


def _name(api: Api) -> str:
    return "".join(word.capitalize() for word in api.name.split("_"))


def _encoded(api: Api, header: RequestHeader, answer: Message) -> Pieces:
    out = response_header(header)
    response_writer(api.request, header.version)(out, answer)
    return [finish_frame(out)]


def _names(message: Message) -> Iterator[str | UUID]:
    for name in message.declared_fields:
        value = getattr(message, name, None)
        if (isinstance(value, str) and name in ("name", "topic", "topic_name")) or (
            isinstance(value, UUID) and name == "topic_id"
        ):
            yield value
        elif isinstance(value, list):
            yield from _names_in(name, value)


def _names_in(name: str, values: list[object]) -> Iterator[str | UUID]:
    for each in values:
        if isinstance(each, Message):
            yield from _names(each)
        elif isinstance(each, str) and name in ("topics", "topic_names", "subscribed_topic_names"):
            yield each
