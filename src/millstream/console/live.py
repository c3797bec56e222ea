"""Live data: one stream of typed events for each open page (server-sent events).

`sample` says that there are new numbers; the page then asks for what it shows. `record` is a new
record of the topic that the page follows. A stream ends after an hour, or when the server stops;
browsers connect again on their own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from millstream.console.asking import AskFailed
from millstream.console.console import BadInput, Console, NotFound
from millstream.console.page import Values, plain
from millstream.console.records import Tail

# Each costs a connection and, while it follows a topic, some fetches.
STREAMS_MAX: Final = 100
_STREAM_SECONDS_MAX: Final = 3_600.0
# A comment now and then, so that a closed browser is noticed.
_BEAT_SECONDS: Final = 15.0
_RECORDS_PER_EVENT_MAX: Final = 50
_RECORDS_EVERY_SECONDS: Final = 0.5


class _Streams:
    def __init__(self) -> None:
        self.open = 0


def event(kind: str, value: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


def endpoint(console: Console) -> Callable[[Request], Awaitable[Response]]:
    streams = _Streams()

    async def answer(request: Request) -> Response:
        if streams.open >= STREAMS_MAX:
            return PlainTextResponse("Too many live pages are open.\n", 503)
        values = Values(dict(request.query_params))
        try:
            tail = await _tail(console, values)
        except (AskFailed, BadInput, NotFound) as problem:
            return PlainTextResponse(f"{problem}\n", 404)
        return StreamingResponse(
            _counted(streams, _events(console, tail)), media_type="text/event-stream"
        )

    return answer


async def _tail(console: Console, values: Values) -> Tail | None:
    if not values.has("topic"):
        return None
    topic = await console.topic(values.text("topic"))
    return await Tail.open(
        console.client, topic, display=console.display(values.text("as") or "auto")
    )


async def _counted(streams: _Streams, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    streams.open += 1
    try:
        async for each in events:
            yield each
    finally:
        streams.open -= 1


async def _events(console: Console, tail: Tail | None) -> AsyncIterator[bytes]:
    """Whatever happens first: a sample, records, the end of the server."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + _STREAM_SECONDS_MAX
    yield event("hello", {"is_live": True})
    stopping = asyncio.ensure_future(console.stopping.wait())
    sampled = asyncio.ensure_future(console.sampler.wait_next())
    records = None if tail is None else asyncio.ensure_future(_read(console, tail))
    try:
        while loop.time() < ends_at and not stopping.done():
            waited = {each for each in (stopping, sampled, records) if each is not None}
            done, _ = await asyncio.wait(
                waited, timeout=_BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                yield b": still here\n\n"
            if sampled in done:
                yield event("sample", {"at_ms": console.clock.now_ms()})
                sampled = asyncio.ensure_future(console.sampler.wait_next())
            if tail is not None and records is not None and records in done:
                for each in records.result():
                    yield event("record", plain(each))
                records = asyncio.ensure_future(_read(console, tail))
    finally:
        for each in (stopping, sampled, records):
            if each is not None:
                each.cancel()


async def _read(console: Console, tail: Tail) -> list[object]:
    """New records, a few at a time and not too often: nobody reads faster."""
    await asyncio.sleep(_RECORDS_EVERY_SECONDS)
    try:
        topic = await console.topic(tail.topic_name)
        return list(await tail.read(topic, _RECORDS_PER_EVENT_MAX))
    except (AskFailed, NotFound):
        await asyncio.sleep(_BEAT_SECONDS)
        return []
