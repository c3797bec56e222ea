"""A server that speaks TLS, with clients that keep to it and clients that do not.

Covers broker/network/tls_connection.py, broker/network/tls_socket.py, security/tls_session.py.
"""

import asyncio
import logging
import os
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.network import tls_connection
from millstream.broker.network.connection import Connection
from millstream.broker.network.output import SendRange
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.server import Limits, Server
from millstream.broker.network.tls_socket import TlsSocket
from millstream.errors import ProtocolError
from millstream.model import Principal
from millstream.security.tls import Store, client_context
from millstream.storage.values import FileRange
from tests.support.certificates import Certificates

LIMITS = Limits(
    frame_bytes_max=8 << 20,
    connections_max=5000,
    connections_per_ip_max=5000,
    connections_per_ip_overrides={},
    idle_seconds_max=600,
    request_bytes_max=1 << 30,
)
LARGE = 6 << 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Identity:
    def __init__(self, certificates: Certificates) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.options |= ssl.OP_NO_RENEGOTIATION
        self._context.load_cert_chain(certificates.server)
        self._context.load_verify_locations(certificates.ca)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self.shown: list[bytes | None] = []

    def context(self) -> ssl.SSLContext:
        return self._context

    def principal(self, certificate: bytes | None) -> Principal:
        self.shown.append(certificate)
        return Principal("User:nobody" if certificate is None else "User:somebody")


class LogFile:
    """What a range of a log needs of its file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        self.pins = 0

    def pin(self) -> int:
        self.pins += 1
        return self._descriptor

    def unpin(self) -> None:
        self.pins -= 1

    def close(self) -> None:
        os.close(self._descriptor)


class Node:
    """Answers a frame with itself; `large` with a range of a file; `gate` when told to."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        (folder / "log").write_bytes(os.urandom(1 << 16) * (LARGE >> 16))
        self.log = LogFile(folder / "log")
        self.gates: list[asyncio.Future[Pieces]] = []
        self.gate_is_there = [asyncio.Event(), asyncio.Event()]
        self.principals: list[str] = []
        self.identity = Identity(certificates)
        self.server = Server(self._dispatch, LIMITS)
        self.tls_port = self.server.bind("SSL", "127.0.0.1", 0, self.identity).port
        self.plain_port = self.server.bind("PLAINTEXT", "127.0.0.1", 0).port

    def _dispatch(self, connection: Connection, data: memoryview) -> Pieces | Pending:
        self.principals.append(connection.principal)
        body = bytes(data)
        if body.startswith(b"large"):
            file_range = FileRange(self.log, 0, LARGE)  # type: ignore[arg-type]
            return [struct.pack(">i", LARGE), SendRange(file_range)]
        if body.startswith(b"gate"):
            self.gates.append(asyncio.get_running_loop().create_future())
            self.gate_is_there[len(self.gates) - 1].set()
            return Pending(self.gates[-1], gate=True)
        if body.startswith(b"refuse"):
            raise ProtocolError("refused")
        return [frame(body)]


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, *bodies: bytes) -> list[bytes]:
        self.writer.write(b"".join(frame(body) for body in bodies))
        await self.writer.drain()
        return [await self.answer() for _ in bodies]

    async def answer(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)


class Served:
    def __init__(self, node: Node, certificates: Certificates) -> None:
        self.node = node
        self.certificates = certificates
        self._writers: list[asyncio.StreamWriter] = []

    def client_context(self, keystore: str) -> ssl.SSLContext:
        trust = Store("ssl.truststore", str(self.certificates.ca))
        return client_context(Store("ssl.keystore", keystore), trust)

    async def client(self, keystore: str = "", **limits: int) -> Client:
        context = self.client_context(keystore)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.node.tls_port, ssl=context, server_hostname="localhost", **limits
        )
        self._writers.append(writer)
        return Client(reader, writer)

    async def raw(self, port: int) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self._writers.append(writer)
        return Client(reader, writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def serving(certificates: Certificates, folder: Path) -> AsyncIterator[Served]:
    node = Node(certificates, folder)
    node.server.start()
    served = Served(node, certificates)
    try:
        yield served
    finally:
        served.close()
        await node.server.stop()
        assert node.log.pins == 0
        node.log.close()


@pytest.fixture
def run(
    certificates: Certificates, tmp_path: Path
) -> Callable[[Callable[[Served], Coroutine[Any, Any, None]]], None]:
    def run_one(test: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(120), serving(certificates, tmp_path) as served:
                await test(served)

        asyncio.run(bounded())

    return run_one


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_a_large_frame_in_small_pieces_takes_few_turns(
    run: Callable[[Callable[[Served], Coroutine[Any, Any, None]]], None],
    monkeypatch: pytest.MonkeyPatch,
    is_encrypted: bool,
) -> None:
    turns = 0
    on_readable = Connection.on_readable

    def counted(self: Connection) -> None:
        nonlocal turns
        turns += 1
        on_readable(self)

    monkeypatch.setattr(Connection, "on_readable", counted)

    async def test(served: Served) -> None:
        client = await (served.client() if is_encrypted else served.raw(served.node.plain_port))
        for size in (300_000, 96 << 10, 1_000_000):
            body = os.urandom(size)
            whole = frame(body)
            for start in range(0, len(whole), 1000):
                client.writer.write(whole[start : start + 1000])
                await client.writer.drain()
                # The server has its turn.
                await asyncio.sleep(0)
            assert await client.answer() == body
            # The frame after it is not waited for longer than before.
            assert await client.ask(b"small one") == [b"small one"]

    run(test)
    assert turns < 1_400_000 // 1000 // 2


Run = Callable[[Callable[[Served], Coroutine[Any, Any, None]]], None]


def test_frames_of_any_size_come_back_in_order(run: Run) -> None:
    async def test(served: Served) -> None:
        client = await served.client()
        bodies = [
            bytes([65 + number]) * size
            for number, size in enumerate((8, 20, 8, 16_384, 70_000, 1_200_000, 8, 3_000_000, 9))
        ]
        assert await client.ask(*bodies) == bodies
        assert await client.ask(b"a small one") == [b"a small one"]

    run(test)


def test_frames_in_pieces_of_records_are_put_together(run: Run) -> None:
    async def test(served: Served) -> None:
        client = await served.client()
        for byte in frame(b"one byte per record"):
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await client.answer() == b"one byte per record"

    run(test)


def test_frames_behind_a_gate_go_on_although_the_socket_is_empty(run: Run) -> None:
    """All of them are decrypted when the gate opens, and no poller reports them."""

    async def test(served: Served) -> None:
        client = await served.client()
        bodies = [b"gate one", b"the next", b"and gate", b"gate two", b"x" * 100_000]
        client.writer.write(b"".join(frame(body) for body in bodies))
        for number in (0, 1):
            await served.node.gate_is_there[number].wait()
            served.node.gates[number].set_result([frame(b"opened")])
        expected = [b"opened", b"the next", b"and gate", b"opened", b"x" * 100_000]
        assert [await client.answer() for _ in bodies] == expected

    run(test)


def test_many_small_replies_and_large_ones_leave_in_order(run: Run) -> None:
    async def test(served: Served) -> None:
        client = await served.client()
        sizes = [9, 70_000, *[20] * 300, 65_536, 65_532, 8, 200_000, *[1000] * 100]
        bodies = [b"gate one", *(bytes([number % 251]) * size for number, size in enumerate(sizes))]
        client.writer.write(b"".join(frame(body) for body in bodies))
        await served.node.gate_is_there[0].wait()
        served.node.gates[0].set_result([frame(b"opened")])
        assert [await client.answer() for _ in bodies] == [b"opened", *bodies[1:]]

    run(test)


def test_a_range_of_a_file_is_sent_whole(run: Run, tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        client = await served.client()
        for _ in range(3):
            (answer,) = await client.ask(b"large and more")
            assert answer == (tmp_path / "log").read_bytes()

    run(test)


def test_a_reader_that_does_not_read_costs_the_others_nothing(run: Run) -> None:
    async def test(served: Served) -> None:
        slow = await served.client(limit=1)
        slow.writer.write(frame(b"large 01") * 3)
        other = await served.client()
        for number in range(200):
            assert await other.ask(b"number %d" % number) == [b"number %d" % number]
        # Its output waits as ranges of the file, hardly any of it encrypted.
        held = [each for each in served.node.server.connections if each.has_output]
        assert len(held) == 1
        for _ in range(3):
            assert len(await slow.answer()) == LARGE

    run(test)


def test_a_client_has_the_principal_of_its_certificate(run: Run) -> None:
    async def test(served: Served) -> None:
        anonymous = await served.client()
        await anonymous.ask(b"anonymous")
        known = await served.client(str(served.certificates.issue("alice")))
        await known.ask(b"with certificate")
        assert served.node.principals == ["User:nobody", "User:somebody"]
        assert [shown is None for shown in served.node.identity.shown] == [True, False]

    run(test)


def test_a_plaintext_client_is_told_apart_at_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(served: Served) -> None:
        client = await served.raw(served.node.tls_port)
        client.writer.write(frame(b"a request"))
        assert await client.reader.read() == b""

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "does not speak TLS, and this listener does" in caplog.text


def test_tls_on_a_plaintext_listener_is_told_apart_at_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(served: Served) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(
                "127.0.0.1", served.node.plain_port, ssl=ssl.create_default_context()
            )

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "it speaks TLS, and this listener does not" in caplog.text


def test_an_unknown_certificate_is_refused_with_the_reason(
    run: Run, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path / "stranger").issue("mallory")

    async def test(served: Served) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            client = await served.client(str(stranger))
            await client.ask(b"with a strange certificate")
        assert served.node.principals == []

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "the TLS handshake failed: certificate verify failed" in caplog.text


def test_tls_1_2_names_a_certificate_that_is_not_trusted_as_javas_servers_do(
    run: Run, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path / "stranger").issue("mallory")

    async def test(served: Served) -> None:
        context = served.client_context(str(stranger))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"(?i)alert bad certificate"):
            await asyncio.open_connection("127.0.0.1", served.node.tls_port, ssl=context)

    run(test)


def test_handshakes_that_never_end_are_closed_and_disturb_nobody(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_connection, "HANDSHAKE_SECONDS_MAX", 1.0)

    async def test(served: Served) -> None:
        hello = client_hello()
        halves = []
        for number in range(300):
            half = await served.raw(served.node.tls_port)
            # Nothing, a part of the first flight, or all of it.
            half.writer.write(hello[: (0, len(hello) // 2, len(hello))[number % 3]])
            halves.append(half)
        client = await served.client()
        assert await client.ask(b"in between") == [b"in between"]
        for half in halves:
            try:
                await half.reader.read()
            except ConnectionResetError:
                continue
        assert await client.ask(b"afterwards") == [b"afterwards"]
        assert len(served.node.server.connections) == 1

    run(test)


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_bytes_that_are_no_tls_after_the_handshake_close_the_connection(run: Run) -> None:
    async def test(served: Served) -> None:
        client = await served.client()
        await client.ask(b"as it should be")
        raw = client.writer.get_extra_info("socket")
        duplicate = socket.socket(fileno=os.dup(raw.fileno()))
        duplicate.send(b"\x17\x03\x03\x00\x20" + os.urandom(32))
        duplicate.close()
        assert await client.reader.read() == b""
        assert not served.node.server.connections

    run(test)


def test_a_handler_that_refuses_closes_the_connection(run: Run) -> None:
    async def test(served: Served) -> None:
        client = await served.client()
        client.writer.write(frame(b"refuse me"))
        assert await client.reader.read() == b""

    run(test)


async def openssl(port: int, version: str, *steps: tuple[bytes, bytes]) -> str:
    """Each step is a text to wait for, and the command that follows it."""
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{port}", version),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        output = b""
        for text, command in steps:
            while text not in output:
                part = await process.stdout.read(4096)
                assert part, output
                output += part
            process.stdin.write(command)
        output += (await process.communicate())[0]
    finally:
        if process.returncode is None:
            process.kill()
    return output.decode(errors="replace")


def test_renegotiation_is_refused(run: Run) -> None:
    async def test(served: Served) -> None:
        port = served.node.tls_port
        output = await openssl(port, "-tls1_2", (b"Verify return code", b"R\n"))
        assert "no renegotiation" in output

    run(test)


def test_new_keys_are_agreed_on_in_the_middle(run: Run) -> None:
    async def test(served: Served) -> None:
        steps = ((b"Verify return code", b"K\n"), (b"KEYUPDATE", b"Q\n"))
        output = await openssl(served.node.tls_port, "-tls1_3", *steps)
        assert "error" not in output.split("KEYUPDATE")[1]

    run(test)


def test_a_closed_socket_keeps_no_session(certificates: Certificates) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        tls = TlsSocket(ours, Identity(certificates).context(), memoryview(bytearray(100)))
        session = weakref.ref(tls._session._object)
        tls.close()
        assert tls.fileno() == -1
        assert session() is None
