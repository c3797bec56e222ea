"""A connection to another node: an answer, or a failure that says what was wrong."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from millstream.client.aio import Connection, NoAnswer
from millstream.wire.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.wire.codec import request_reader, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import finish_frame, read_request_header, response_header

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[Connection]:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    connection = await Connection.open(host, port, client_id="test", timeout_seconds=5)
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        await asyncio.sleep(0.01)


async def read_request(reader: asyncio.StreamReader) -> Cursor:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return Cursor(memoryview(await reader.readexactly(size)))


async def ask(connection: Connection, timeout_seconds: float = 5) -> Any:
    body = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    return await connection.ask(body, 4, timeout_seconds=timeout_seconds)


def test_an_answer_is_read_in_the_version_of_the_request() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            cursor = await read_request(reader)
            header = read_request_header(cursor)
            body = request_reader(FindCoordinatorRequest, header.version)(cursor)
            found = Coordinator(
                key=body.coordinator_keys[0],
                node_id=7,
                host="h",
                port=1,
                error_code=0,
                error_message=None,
            )
            out = response_header(header)
            response_writer(FindCoordinatorRequest, header.version)(
                out, FindCoordinatorResponse(coordinators=[found])
            )
            writer.write(finish_frame(out))

    async def scenario() -> None:
        async with connected(serve) as connection:
            for _ in range(2):
                answer = await ask(connection)
                assert answer.coordinators[0].node_id == 7

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"", "closed"),
        (struct.pack(">i", 100) + b"half", "closed"),
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", 2**31 - 1), "bytes"),
        (struct.pack(">ii", 4, 12345), "another request"),
    ],
)
def test_what_is_no_answer_is_a_failure(sent: bytes, problem: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(sent)

    async def scenario() -> None:
        async with connected(serve) as connection:
            with pytest.raises(NoAnswer, match=problem):
                await ask(connection)

    asyncio.run(scenario())


def test_silence_is_a_failure_after_a_while() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scenario() -> None:
        async with connected(serve) as connection:
            with pytest.raises(NoAnswer):
                await ask(connection, timeout_seconds=0.01)

    asyncio.run(scenario())


def test_a_port_that_refuses_is_a_failure() -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        server.close()
        await server.wait_closed()
        with pytest.raises(NoAnswer, match="cannot reach"):
            await Connection.open(host, port, client_id="test", timeout_seconds=5)

    asyncio.run(scenario())
