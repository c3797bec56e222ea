"""A connection to another node: an answer, or a failure that says what was wrong."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.client.aio import AnswerMemory, Connection, NoAnswer, PlainStream
from millstream.client.security import PLAINTEXT, Security, read_security
from millstream.wire.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.wire.codec import request_reader, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import finish_frame, read_request_header, response_header
from tests.support.certificates import Certificates

# Small ones, and some that need more memory than is there at first.
SIZES = (100, 300_000, 3_000_000, 200_000, 1_000_000)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def connected(
    serve: Serve, tls: ssl.SSLContext | None = None, security: Security = PLAINTEXT
) -> AsyncIterator[Connection]:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        connection = await Connection.open(
            host, port, client_id="test", timeout_seconds=5, security=security
        )
        try:
            yield connection
        finally:
            connection.close()
    finally:
        server.close()
        await asyncio.sleep(0.01)


async def read_request(reader: asyncio.StreamReader) -> Cursor:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return Cursor(memoryview(await reader.readexactly(size)))


async def ask(connection: Connection, timeout_seconds: float = 5) -> Any:
    body = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    return await connection.ask(body, 4, timeout_seconds=timeout_seconds)


async def answer_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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


def test_an_answer_is_read_in_the_version_of_the_request() -> None:
    async def scenario() -> None:
        async with connected(answer_twice) as connection:
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


async def answer_with(writer: asyncio.StreamWriter, cursor: Cursor, body: bytes) -> None:
    writer.write(finish_frame(response_header(read_request_header(cursor)) + body))
    await writer.drain()


async def exchange(connection: Connection, memory: AnswerMemory | None) -> memoryview:
    request = connection.begin(FindCoordinatorRequest.api, 4)
    cursor = await connection.exchange(request, timeout_seconds=60, memory=memory)
    return cursor.take(cursor.end - cursor.position)


def test_answers_into_the_same_memory_are_whole_whatever_their_sizes() -> None:
    bodies = [bytes([letter]) * size for letter, size in zip(b"abcde", SIZES, strict=True)]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body in bodies:
            await answer_with(writer, await read_request(reader), body)

    async def scenario() -> None:
        async with connected(serve) as connection:
            memory = AnswerMemory()
            for body in bodies:
                assert await exchange(connection, memory) == body

    asyncio.run(scenario())


def test_memory_is_used_again_and_given_back_after_a_large_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size in (3_000_000, 2_500_000, 10, 10):
            await answer_with(writer, await read_request(reader), b"x" * size)

    async def scenario() -> None:
        async with connected(serve) as connection:
            memory = AnswerMemory()
            small_bytes = len(memory.view)
            large = await exchange(connection, memory)
            kept = memory.view
            await exchange(connection, memory)
            assert memory.view is kept
            await exchange(connection, memory)
            assert len(memory.view) == small_bytes
            kept = memory.view
            await exchange(connection, memory)
            assert memory.view is kept
            assert large == b"x" * 3_000_000

    asyncio.run(scenario())


def test_an_answer_without_such_memory_stays_as_it_is() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for letter in (b"a", b"b"):
            await answer_with(writer, await read_request(reader), letter * 100)

    async def scenario() -> None:
        async with connected(serve) as connection:
            first = await exchange(connection, None)
            second = await exchange(connection, None)
            assert (bytes(first), bytes(second)) == (b"a" * 100, b"b" * 100)

    asyncio.run(scenario())


def test_more_than_the_answer_is_a_failure() -> None:
    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = read_request_header(await read_request(reader))
        writer.write(finish_frame(response_header(header)) * 2)

    async def scenario() -> None:
        async with connected(twice) as connection:
            with pytest.raises(NoAnswer, match="nobody has asked"):
                await exchange(connection, AnswerMemory())

    asyncio.run(scenario())


def test_a_request_that_the_socket_does_not_take_at_once_is_sent_in_parts() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cursor = await read_request(reader)
        assert bytes(cursor.data[-10:]) == b"y" * 10
        await answer_with(writer, cursor, b"z")

    async def scenario() -> None:
        async with connected(serve) as connection:
            request = connection.begin(FindCoordinatorRequest.api, 4)
            request += b"y" * 30_000_000
            cursor = await connection.exchange(request, timeout_seconds=60)
            assert bytes(cursor.take(1)) == b"z"

    asyncio.run(scenario())


def test_closing_ends_what_is_under_way() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scenario() -> None:
        async with connected(serve) as connection:
            asked = asyncio.ensure_future(ask(connection))
            await asyncio.sleep(0.01)
            connection.close()
            with pytest.raises(NoAnswer, match="closed"):
                await asked

    asyncio.run(scenario())


def test_closing_ends_a_request_that_the_socket_does_not_take() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)

    async def scenario() -> None:
        async with connected(serve) as connection:
            request = connection.begin(FindCoordinatorRequest.api, 4)
            request += bytes(30_000_000)
            sent = asyncio.ensure_future(connection.exchange(request, timeout_seconds=60))
            await asyncio.sleep(0.01)
            connection.close()
            with pytest.raises(NoAnswer, match="closed"):
                await sent

    asyncio.run(scenario())


def test_a_peer_that_hangs_up_between_two_requests_does_not_keep_the_loop_busy() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_with(writer, await read_request(reader), b"x")

    async def scenario() -> None:
        async with connected(serve) as connection:
            await exchange(connection, None)
            await asyncio.sleep(0.02)
            wakes = 0

            def count() -> None:
                nonlocal wakes
                wakes += 1

            connection._wire._wake = count  # type: ignore[method-assign]
            await asyncio.sleep(0.02)
            assert wakes == 0
            with pytest.raises(NoAnswer):
                await exchange(connection, None)

    asyncio.run(scenario())


def secured(certificates: Certificates) -> tuple[ssl.SSLContext, Security]:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificates.server)
    options = {"security.protocol": "SSL", "ssl.truststore.location": str(certificates.ca)}
    return server, read_security(options)


def test_answers_come_over_tls(tmp_path: Path) -> None:
    server, client = secured(Certificates(tmp_path))

    async def scenario() -> None:
        async with connected(answer_twice, server, client) as connection:
            for _ in range(2):
                assert (await ask(connection)).coordinators[0].node_id == 7

    asyncio.run(scenario())


def test_a_large_answer_comes_over_tls(tmp_path: Path) -> None:
    server, client = secured(Certificates(tmp_path))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = read_request_header(await read_request(reader))
        writer.write(finish_frame(response_header(header) + b"x" * 3_000_000))
        await writer.drain()

    async def scenario() -> None:
        async with connected(serve, server, client) as connection:
            request = connection.begin(FindCoordinatorRequest.api, 4)
            cursor = await connection.exchange(request, timeout_seconds=60)
            assert bytes(cursor.take(3_000_000)) == b"x" * 3_000_000

    asyncio.run(scenario())


def test_a_server_that_is_not_trusted_is_a_failure_that_says_so(tmp_path: Path) -> None:
    server, _ = secured(Certificates(tmp_path / "ours"))
    _, client = secured(Certificates(tmp_path / "others"))

    async def scenario() -> None:
        with pytest.raises(NoAnswer, match=r"certificate.*ssl\.truststore\.location"):
            async with connected(answer_twice, server, client):
                pass

    asyncio.run(scenario())


def test_a_server_without_tls_is_a_failure_that_says_so(tmp_path: Path) -> None:
    _, client = secured(Certificates(tmp_path))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS here")

    async def scenario() -> None:
        with pytest.raises(NoAnswer, match="does not speak TLS"):
            async with connected(serve, None, client):
                pass

    asyncio.run(scenario())


class CountedSocket(socket.socket):
    sends = 0

    def send(self, *args: Any) -> int:
        self.sends += 1
        return super().send(*args)


def test_a_full_socket_waits_although_the_other_side_has_closed_its_half() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with CountedSocket(fileno=ours.detach()) as sock, theirs:
            sock.setblocking(False)
            theirs.setblocking(False)
            stream = PlainStream(sock)
            loop = asyncio.get_running_loop()
            data = bytes(10_000_000)

            async def answered_and_asked() -> None:
                # The next request follows at once, so that the loop still watches for answers.
                assert await stream.receive_into(memoryview(bytearray(10))) == 3
                await stream.send(data)

            asking = asyncio.create_task(answered_and_asked())
            await asyncio.sleep(0)
            await loop.sock_sendall(theirs, b"one")
            theirs.shutdown(socket.SHUT_WR)
            for _ in range(100):
                await asyncio.sleep(0)
            assert 1 <= sock.sends <= 3, "it tries when the socket takes more, not all the time"
            rest = len(data)
            while rest:
                rest -= len(await loop.sock_recv(theirs, 1_000_000))
            await asking
            assert await stream.receive_into(memoryview(bytearray(10))) == 0
            stream.close()

    asyncio.run(scenario())
