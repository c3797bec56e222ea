"""Frames in any chunking, replies in request order, and what closes a connection."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from millstream.broker.network import connection as connection_module
from millstream.broker.network.client_turns import TURN_SECONDS_MAX, ClientTurns
from millstream.broker.network.connection import (
    IN_FLIGHT_MAX,
    OUTPUT_MEMORY_MAX,
    SHARED_BUFFER_BYTES,
    Connection,
    kept_frame,
)
from millstream.broker.network.memory import RequestMemory
from millstream.broker.network.receiving import COMPILED, LoopReceiver, Receiver, start_receiving
from millstream.broker.network.replies import Pending, Pieces
from millstream.errors import ProtocolError
from millstream.model import Principal


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def receiving(request: pytest.FixtureRequest) -> None:
    if request.param == "compiled" and COMPILED is None:
        pytest.skip("millstream.broker.network._receiving is not compiled")
    Host.is_compiled = request.param == "compiled"


class Host:
    """A server that answers a frame with itself, or waits when the frame says so."""

    is_compiled = False

    def __init__(self, buffer_bytes: int = 4096, request_bytes_max: int = 1 << 30) -> None:
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.frame_bytes_max = 1 << 20
        self.memory = RequestMemory(request_bytes_max)
        self.turns = ClientTurns()
        self.receiver: Receiver = LoopReceiver()
        if self.is_compiled:
            loop = asyncio.get_running_loop()
            self.receiver = start_receiving(loop, self.frame_bytes_max)
        Client.hosts.append(self)
        self.seen: list[bytes] = []
        self.has_one_client = True
        self.lends_buffers = True
        self.lent: list[memoryview] = []
        self.answers: dict[bytes, asyncio.Future[Pieces]] = {}
        self.waits: dict[bytes, asyncio.Future[None]] = {}
        self.forgotten: list[Connection] = []
        self.tasks: list[asyncio.Task[None]] = []

    def dispatch(self, connection: Connection, data: memoryview) -> Pieces | Pending:
        body = bytes(data)
        self.seen.append(body)
        if any(data.obj is buffer.obj for buffer in (self.buffer, *self.lent)):
            # Whoever keeps a view of the shared buffer reads rubbish from now on.
            data[:] = b"\xdd" * len(data)
        if body.startswith(b"refuse"):
            raise ProtocolError("refused")
        if body.startswith((b"wait", b"gate")):
            self.waits[body] = asyncio.get_running_loop().create_future()
            return Pending(self._later(body), gate=body.startswith(b"gate"))
        if body.startswith(b"future"):
            self.answers[body] = asyncio.get_running_loop().create_future()
            return Pending(self.answers[body])
        return [frame(body)]

    async def _later(self, body: bytes) -> Pieces:
        await self.waits[body]
        return [frame(body)]

    def is_alone(self, connection: Connection) -> bool:
        return self.has_one_client

    def lend_buffer(self) -> memoryview | None:
        if not self.lends_buffers:
            return None
        lent, self.buffer = self.buffer, memoryview(bytearray(len(self.buffer)))
        self.lent.append(lent)
        return lent

    def return_buffer(self, buffer: memoryview) -> None:
        self.lent.remove(buffer)

    def flush_soon(self, connection: Connection) -> None:
        asyncio.get_running_loop().call_soon(connection.flush)

    flush_with_others = flush_soon

    def forget(self, connection: Connection) -> None:
        self.forgotten.append(connection)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coroutine))

    def run_blocking(self, call: Callable[[], bool]) -> "asyncio.Future[bool]":
        return asyncio.get_running_loop().run_in_executor(None, call)


class Client:
    """The other end of a connection under test."""

    opened: ClassVar[list["Client"]] = []
    hosts: ClassVar[list[Host]] = []

    def __init__(self, host: Host) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.sock = ours
        self.connection = Connection(host, theirs, listener="PLAINTEXT", peer="test:1", now=0.0)
        Client.opened.append(self)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = await asyncio.get_running_loop().sock_recv(self.sock, count - len(data))
            if not part:
                break
            data += part
        return data

    @property
    def unsent_bytes(self) -> int:
        sender = self.connection._sender
        return 0 if sender is None else sender.output.memory_bytes

    async def settle(self) -> None:
        """Let the loop handle everything that is already there."""
        for _ in range(20):
            await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        Client.opened.clear()
        Client.hosts.clear()
        try:
            await asyncio.wait_for(test(), 120)
        finally:
            for client in Client.opened:
                client.sock.close()
                client.connection.close()
            for host in Client.hosts:
                host.receiver.close()

    asyncio.run(bounded())


@pytest.mark.parametrize("has_one_client", [True, False])
@pytest.mark.parametrize("chunk", [1, 3, 4, 5, 11, 12, 13, 100, 10_000])
def test_frames_come_out_whole_whatever_the_chunks(chunk: int, has_one_client: bool) -> None:
    async def test() -> None:
        host = Host()
        host.has_one_client = has_one_client
        client = Client(host)
        bodies = [bytes([65 + i]) * size for i, size in enumerate((8, 20, 8, 3000, 9, 70_000, 8))]
        stream = b"".join(frame(body) for body in bodies)

        async def feed() -> None:
            for start in range(0, len(stream), chunk):
                await client.send(stream[start : start + chunk])
                if chunk < 100:
                    await asyncio.sleep(0)

        feeding = asyncio.create_task(feed())
        answer = await client.receive(len(stream))
        await feeding
        assert answer == stream
        assert host.seen == bodies

    run(test)


@pytest.mark.parametrize("lends_buffers", [True, False])
@pytest.mark.parametrize("chunk", [5, 1000, 66_000, 300_000, 1_000_000])
def test_large_frames_are_received_where_they_begin(chunk: int, lends_buffers: bool) -> None:
    async def test() -> None:
        host = Host(buffer_bytes=1 << 18)
        host.lends_buffers = lends_buffers
        client = Client(host)
        sizes = (8, 70_000, 200_000, 8, 8, 262_000, 262_140, 262_141, 500_000, 66_000, 8)
        bodies = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
        stream = b"".join(frame(body) for body in bodies)

        async def feed() -> None:
            # Small pieces at the start only, where frames begin.
            starts = [*range(0, 500, chunk), *range(500, len(stream), max(chunk, 1000))]
            for start, end in zip(starts, [*starts[1:], len(stream)], strict=True):
                await client.send(stream[start:end])
                await asyncio.sleep(0)

        feeding = asyncio.create_task(feed())
        assert await client.receive(len(stream)) == stream
        await feeding
        assert host.seen == bodies
        assert host.lent == []
        assert host.memory.held_bytes == 0

    run(test)


def test_a_client_that_leaves_in_the_middle_of_a_large_frame_returns_the_buffer() -> None:
    async def test() -> None:
        host = Host(buffer_bytes=1 << 18)
        client = Client(host)
        await client.send(frame(b"x" * 200_000)[:100_000])
        await client.settle()
        assert len(host.lent) == 1
        client.sock.close()
        await client.settle()
        assert host.forgotten == [client.connection]
        assert host.lent == []

    run(test)


def test_replies_leave_in_request_order_though_the_first_waits() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        await client.send(frame(b"wait 0001") + frame(b"quick 0002"))
        await client.settle()
        assert host.seen == [b"wait 0001", b"quick 0002"]
        host.waits[b"wait 0001"].set_result(None)
        expected = frame(b"wait 0001") + frame(b"quick 0002")
        assert await client.receive(len(expected)) == expected

    run(test)


def test_a_reply_that_is_a_future_keeps_its_place() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        await client.send(frame(b"future 0001") + frame(b"quick 0002"))
        await client.settle()
        host.answers[b"future 0001"].set_result([frame(b"first")])
        expected = frame(b"first") + frame(b"quick 0002")
        assert await client.receive(len(expected)) == expected

    run(test)


def test_a_reply_that_fails_closes_the_connection() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        await client.send(frame(b"future 0001"))
        await client.settle()
        host.answers[b"future 0001"].set_exception(ValueError("a bug"))
        assert await client.receive(1) == b""
        assert host.forgotten == [client.connection]

    run(test)


def test_pipelined_requests_of_one_client_do_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class SlowHost(Host):
        """Every request takes two turns' time, on a clock that only they move."""

        now = 0.0

        def dispatch(self, connection: Connection, data: memoryview) -> Pieces | Pending:
            self.now += 2 * TURN_SECONDS_MAX
            return super().dispatch(connection, data)

    async def test() -> None:
        host = SlowHost()
        monkeypatch.setattr(connection_module, "perf_counter", lambda: host.now)
        busy, other = Client(host), Client(host)
        many = [b"busy %04d" % number for number in range(50)]
        await busy.send(b"".join(frame(body) for body in many))
        await other.send(frame(b"other 001"))
        expected = b"".join(frame(body) for body in many)
        assert await busy.receive(len(expected)) == expected
        assert host.seen.index(b"other 001") < 5

    run(test)


def test_small_requests_with_large_replies_wait_until_these_are_read() -> None:
    reply = bytes(100_000)

    class WordyHost(Host):
        def dispatch(self, connection: Connection, data: memoryview) -> Pieces | Pending:
            super().dispatch(connection, data)
            return [frame(reply)]

    async def test() -> None:
        host = WordyHost()
        client = Client(host)
        for sock in (client.sock, client.connection.sock):
            assert isinstance(sock, socket.socket)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await client.send(b"".join(frame(b"ask %06d" % number) for number in range(100)))
        await client.settle()
        assert len(host.seen) < 10
        for _ in range(100):
            assert client.unsent_bytes < OUTPUT_MEMORY_MAX + len(frame(reply))
            assert await client.receive(len(frame(reply))) == frame(reply)
        assert len(host.seen) == 100

    run(test)


@pytest.mark.parametrize("are_ready_at_once", [True, False])
def test_large_replies_behind_one_that_waits_stop_the_reading(are_ready_at_once: bool) -> None:
    reply = bytes(100_000)

    class WordyHost(Host):
        def dispatch(self, connection: Connection, data: memoryview) -> Pieces | Pending:
            answer = super().dispatch(connection, data)
            if isinstance(answer, Pending):
                return answer
            if are_ready_at_once:
                return [frame(reply)]
            loop = asyncio.get_running_loop()
            later = loop.create_future()
            loop.call_soon(later.set_result, [frame(reply)])
            return Pending(later)

    async def test() -> None:
        host = WordyHost()
        client = Client(host)
        await client.send(frame(b"future 001"))
        for number in range(50):
            await client.send(frame(b"ask %06d" % number))
            await client.settle()
        assert len(host.seen) == 4
        assert not client.connection.is_reading
        host.answers[b"future 001"].set_result([frame(b"future 001")])
        expected = [frame(b"future 001")] + 50 * [frame(reply)]
        for each in expected:
            assert await client.receive(len(each)) == each
        assert len(host.seen) == 51
        assert client.connection._replies is not None
        assert client.connection._replies.memory_bytes == 0

    run(test)


def test_replies_to_requests_that_had_to_wait_for_output_all_leave() -> None:
    """The socket takes at once what held them back."""
    reply = bytes(OUTPUT_MEMORY_MAX)

    class WordyHost(Host):
        def dispatch(self, connection: Connection, data: memoryview) -> Pieces | Pending:
            super().dispatch(connection, data)
            return [frame(reply)]

    async def test() -> None:
        client = Client(WordyHost())
        for sock in (client.sock, client.connection.sock):
            assert isinstance(sock, socket.socket)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        await client.send(frame(b"ask 00001") + frame(b"ask 00002") + frame(b"ask 00003"))
        for _ in range(3):
            received = client.receive(len(frame(reply)))
            assert await asyncio.wait_for(received, 10) == frame(reply)

    run(test)


def test_a_bug_met_while_going_on_closes_the_connection() -> None:
    class BuggyHost(Host):
        def dispatch(self, connection: Connection, data: memoryview) -> Pieces | Pending:
            if bytes(data).startswith(b"bug"):
                raise ZeroDivisionError
            return super().dispatch(connection, data)

    async def test() -> None:
        host = BuggyHost()
        client = Client(host)
        await client.send(frame(b"gate 0001") + frame(b"bug 00002"))
        await client.settle()
        host.waits[b"gate 0001"].set_result(None)
        while await client.receive(1):
            pass
        assert host.forgotten == [client.connection]

    run(test)


def test_a_gate_holds_back_the_next_frame_until_the_effect() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        await client.send(frame(b"gate 0001") + frame(b"quick 0002"))
        await client.settle()
        assert host.seen == [b"gate 0001"]
        host.waits[b"gate 0001"].set_result(None)
        expected = frame(b"gate 0001") + frame(b"quick 0002")
        assert await client.receive(len(expected)) == expected

    run(test)


def test_too_many_requests_in_flight_stop_the_reading() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        bodies = [b"wait %06d" % i for i in range(IN_FLIGHT_MAX + 50)]
        stream = b"".join(frame(body) for body in bodies)
        await client.send(stream)
        # On a busy machine its address may have several turns.
        for _ in range(1000):
            if len(host.seen) >= IN_FLIGHT_MAX:
                break
            await asyncio.sleep(0)
        await client.settle()
        assert len(host.seen) == IN_FLIGHT_MAX
        for body in bodies:
            for _ in range(1000):
                if body in host.waits:
                    break
                await asyncio.sleep(0)
            host.waits[body].set_result(None)
        assert await client.receive(len(stream)) == stream

    run(test)


@pytest.mark.parametrize(
    "data",
    [struct.pack(">i", -5), struct.pack(">i", 2), struct.pack(">i", 1 << 30), frame(b"refuse me")],
)
def test_what_is_not_the_protocol_closes_the_connection(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        await client.send(data)
        assert await client.receive(1) == b""
        assert host.forgotten == [client.connection]

    run(test)
    assert len([r for r in caplog.records if "closing" in r.message]) == 1


def test_memory_of_a_partial_frame_grows_with_what_arrived_not_with_what_is_claimed() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        await client.send(struct.pack(">i", 1 << 20) + b"x" * 10)
        await client.settle()
        partial = client.connection._partial
        assert partial is not None
        assert len(partial._data) <= 65536

    run(test)


def test_the_time_of_a_frame_does_not_run_while_its_client_is_muted() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        connection = client.connection
        answer = host.dispatch

        def mute(connection: Connection, data: memoryview) -> Pieces | Pending:
            connection.mute(0.05)
            return answer(connection, data)

        connection.answer = mute
        await client.send(frame(b"over its quota") + struct.pack(">i", 1 << 20) + bytes(10))
        await client.settle()
        assert not connection.is_reading
        assert connection.partial_bytes == 14
        assert connection.window_began_at is None
        await asyncio.sleep(0.1)
        assert connection.is_reading
        assert connection.window_began_at is not None

    run(test)


def test_the_time_of_a_frame_does_not_run_behind_a_second_one_that_waits() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        connection = client.connection
        await client.send(frame(b"gate first") + frame(b"gate second") + frame(b"behind them"))
        await client.settle()
        host.waits[b"gate first"].set_result(None)
        await client.settle()
        assert host.seen == [b"gate first", b"gate second"]
        assert not connection.is_reading
        assert connection.window_began_at is None
        host.waits[b"gate second"].set_result(None)
        await client.settle()
        assert host.seen[2:] == [b"behind them"]

    run(test)


def test_what_waits_in_the_socket_has_arrived() -> None:
    """The poller reports a large frame only from time to time."""

    async def test() -> None:
        host = Host()
        client = Client(host)
        connection = client.connection
        assert connection.window_began_at is None
        await client.send(struct.pack(">i", 1 << 20) + bytes(10))
        await client.settle()
        assert connection.window_began_at is not None
        assert (connection.window_bytes, connection.arrived_bytes) == (0, 14)
        await client.send(bytes(5))
        await client.settle()
        assert connection.arrived_bytes == 19
        await client.send(bytes((1 << 20) - 15))
        await client.receive(4 + (1 << 20))
        assert connection.window_began_at is None

    run(test)


def test_a_frame_that_had_to_wait_begins_a_window() -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        connection = client.connection
        await client.send(frame(b"gate12345") + frame(bytes(100))[:50])
        await client.settle()
        assert connection.window_began_at is None
        host.waits[b"gate12345"].set_result(None)
        await client.receive(13)
        assert connection.window_began_at is not None
        assert (connection.window_bytes, connection.arrived_bytes) == (50, 50)

    run(test)


def test_a_user_shares_nothing_with_others_at_the_same_address() -> None:
    async def test() -> None:
        host = Host()
        stranger, first, second, other = (Client(host).connection for _ in range(4))
        for connection in (first, second):
            connection.identify(Principal("User:alice"))
        other.identify(Principal("User:bob"))
        assert first.client == second.client
        assert len({stranger.client, first.client, other.client}) == 3

    run(test)


def test_memory_of_a_large_frame_grows_in_steps_that_take_no_time() -> None:
    async def test() -> None:
        host = Host()
        host.frame_bytes_max = 1 << 26
        client = Client(host)
        half = 10 << 20
        await client.send(struct.pack(">i", 2 * half) + bytes(half))
        await client.settle()
        partial = client.connection._partial
        assert partial is not None
        assert partial.have <= len(partial._data) <= partial.have + (1 << 20)
        await client.send(bytes(half))
        assert await client.receive(2 * half + 4) == frame(bytes(2 * half))

    run(test)


@pytest.mark.parametrize("size", [100, SHARED_BUFFER_BYTES, SHARED_BUFFER_BYTES + 1])
def test_a_frame_that_is_kept_survives_the_next_one(size: int) -> None:
    async def test() -> None:
        host = Host(buffer_bytes=SHARED_BUFFER_BYTES)
        host.frame_bytes_max = 1 << 26
        kept: list[memoryview] = []

        def keep(connection: Connection, data: memoryview) -> Pieces:
            kept.append(kept_frame(data))
            return [frame(b"kept")]

        client = Client(host)
        client.connection.answer = keep
        bodies = [bytes([number]) * size for number in range(3)]
        for body in bodies:
            await client.send(frame(body))
            await client.receive(8)
        assert [bytes(one) for one in kept] == bodies

    run(test)


def test_a_client_that_leaves_is_forgotten_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        host = Host()
        client = Client(host)
        await client.send(frame(b"wait 0001"))
        await client.settle()
        client.sock.close()
        await client.settle()
        assert host.forgotten == [client.connection]
        host.waits[b"wait 0001"].set_result(None)
        await client.settle()
        assert host.tasks[0].done()
        assert host.tasks[0].exception() is None

    run(test)
    assert not caplog.records


class News:
    """What a request waits for."""

    def __init__(self) -> None:
        self._awake = asyncio.Event()
        self.wake = self._awake.set
        self.until_awake = self._awake.wait

    @property
    def is_awake(self) -> bool:
        return self._awake.is_set()


def test_waits_end_with_their_client() -> None:
    async def test() -> None:
        client = Client(Host())
        over, waiting, late = News(), News(), News()
        for each in (over, waiting):
            client.connection.begin_wait(each)
        client.connection.end_wait(over)
        await client.settle()
        assert not waiting.is_awake
        client.sock.close()
        await client.settle()
        assert client.connection.is_closed
        client.connection.begin_wait(late)
        client.connection.end_wait(late)
        assert (over.is_awake, waiting.is_awake, late.is_awake) == (False, True, True)

    run(test)


@pytest.mark.parametrize("is_held_back_first", [False, True])
def test_a_client_that_leaves_while_nothing_is_read_is_noticed_if_it_waits(
    monkeypatch: pytest.MonkeyPatch, is_held_back_first: bool
) -> None:
    monkeypatch.setattr(connection_module, "_LOOK_SECONDS", 0.001)

    async def test() -> None:
        host = Host()
        client, news = Client(host), News()
        if not is_held_back_first:
            client.connection.begin_wait(news)
        await client.send(frame(b"gate 0001") + frame(b"behind it"))
        await client.settle()
        assert not client.connection.is_reading
        if is_held_back_first:
            client.connection.begin_wait(news)
        # It is looked several times.
        await asyncio.sleep(0.01)
        assert not news.is_awake
        client.sock.close()
        await news.until_awake()
        assert client.connection.is_closed
        assert host.seen == [b"gate 0001"]
        host.waits[b"gate 0001"].set_result(None)

    run(test)


def test_large_frames_wait_for_memory_and_all_get_through() -> None:
    async def test() -> None:
        host = Host(request_bytes_max=250_000)
        clients = [Client(host) for _ in range(5)]
        body = b"x" * 200_000
        sending = [asyncio.create_task(client.send(frame(body))) for client in clients]
        for client in clients:
            assert await client.receive(len(body) + 4) == frame(body)
        await asyncio.gather(*sending)
        assert host.memory.held_bytes == 0

    run(test)


def test_a_large_frame_that_is_given_up_gives_its_memory_back() -> None:
    async def test() -> None:
        host = Host(request_bytes_max=250_000)
        first, second = Client(host), Client(host)
        await first.send(struct.pack(">i", 200_000) + b"y" * 70_000)
        await first.settle()
        sending = asyncio.create_task(second.send(frame(b"x" * 200_000)))
        await second.settle()
        assert host.seen == []
        first.sock.close()
        assert len(await second.receive(200_004)) == 200_004
        await sending

    run(test)


@pytest.mark.parametrize("is_one_frame", [False, True])
def test_what_arrives_behind_a_gate_counts_as_received(is_one_frame: bool) -> None:
    async def test() -> None:
        host = Host(buffer_bytes=1 << 18)
        host.lends_buffers = False
        client = Client(host)
        behind = frame(b"x" * 100_000) if is_one_frame else 1000 * frame(b"y" * 96)
        stream = frame(b"gate 0001") + behind
        await client.send(stream[:80_000])
        await client.settle()
        assert not client.connection.is_reading
        assert host.memory.held_bytes == 80_000 - len(frame(b"gate 0001"))
        host.waits[b"gate 0001"].set_result(None)
        sending = asyncio.create_task(client.send(stream[80_000:]))
        assert await client.receive(len(stream)) == stream
        await sending
        assert host.memory.held_bytes == 0

    run(test)


def test_while_memory_is_short_little_is_received_of_a_frame_that_then_waits() -> None:
    async def test() -> None:
        limit = 500_000
        host = Host(buffer_bytes=1 << 18, request_bytes_max=limit)
        held = host.memory.hold("another", limit)
        clients = [Client(host) for _ in range(3)]
        body = b"x" * 400_000
        may_end = asyncio.Event()

        async def send(client: Client) -> None:
            await client.send(frame(body)[:300_000])
            await may_end.wait()
            await client.send(frame(body)[300_000:])

        sending = [asyncio.create_task(send(client)) for client in clients]
        for client in clients:
            await client.settle()
        # The first of them may exceed the limit.
        sizes = [client.connection.partial_bytes for client in clients]
        assert sorted(sizes)[:2] == [1 << 16, 1 << 16]
        assert host.memory.held_bytes == limit + 2 * (1 << 16) + len(frame(body))
        assert host.seen == []
        host.memory.release(held)
        may_end.set()
        for client in clients:
            assert await client.receive(len(body) + 4) == frame(body)
        await asyncio.gather(*sending)
        assert host.memory.held_bytes == 0

    run(test)


def test_a_client_that_is_answered_without_its_connection_is_heard() -> None:
    async def test() -> None:
        host = Host()
        connections = [Client(host).connection for _ in range(2)]
        for name, connection in zip("ab", connections, strict=True):
            connection.client = name
            connection.on_answered(asyncio.get_running_loop().time() + 60)
        assert host.turns.is_in_use()
        assert host.turns.is_shared()
        assert host.turns.has_others("a")

    run(test)


def test_a_closed_connection_touches_no_descriptor() -> None:
    async def test() -> None:
        client = Client(Host())
        client.connection.close()
        registration = client.connection._registration
        touched: list[str] = []
        client.connection._registration = SimpleNamespace(  # type: ignore[assignment]
            pause=lambda: touched.append("pause"), resume=lambda: touched.append("resume")
        )
        client.connection.restrict(client.connection.answer, frame_bytes_max=100)
        client.connection.close_when_sent("too late")
        assert touched == []
        client.connection._registration = registration

    run(test)
