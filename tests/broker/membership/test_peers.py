"""Requests to other nodes: connections are kept, and one that died meanwhile costs nothing."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from millstream.broker.membership.peers import Peers
from millstream.client.aio import Connection, NoAnswer
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.codec import response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import finish_frame, read_request_header, response_header

PEER = 2


async def believed(connection: Connection) -> None:
    """The other end knows this node without a proof."""


class Node:
    """Answers FindCoordinator. `hangs_up` closes after a request, `is_silent` says nothing."""

    def __init__(self) -> None:
        self.hangs_up = False
        self.is_silent = False
        self.requests = 0
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.address: tuple[str, int] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header = read_request_header(Cursor(memoryview(await reader.readexactly(size))))
                self.requests += 1
                self.asked.set()
                if self.is_silent:
                    await reader.read()
                if self.hangs_up:
                    break
                await self.may_answer.wait()
                out = response_header(header)
                response_writer(FindCoordinatorRequest, header.version)(
                    out, FindCoordinatorResponse(coordinators=[])
                )
                writer.write(bytes(finish_frame(out)))
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.connections -= 1

    async def hang_up(self) -> None:
        """As a process that died while nobody asked it anything."""
        for writer in self.writers:
            writer.close()
        await until_none_is_left(self)


async def until_none_is_left(node: Node) -> None:
    async with asyncio.timeout(10):
        while node.connections:  # noqa: ASYNC110  # the other side sees it when it does
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def served(node: Node) -> AsyncIterator[None]:
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    node.address = server.sockets[0].getsockname()[:2]
    try:
        yield
    finally:
        server.close()


@contextlib.asynccontextmanager
async def peers_of(node: Node) -> AsyncIterator[Peers]:
    async with served(node):
        peers = Peers(1, lambda broker_id: node.address if broker_id == PEER else None, believed)
        try:
            yield peers
        finally:
            peers.close()
            await until_none_is_left(node)


async def ask(peers: Peers, broker_id: int = PEER, timeout_seconds: float = 10.0) -> Any:
    body = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    return await peers.ask(broker_id, body, 4, timeout_seconds=timeout_seconds)


def test_a_connection_is_kept_for_the_next_request() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            for _ in range(3):
                await ask(peers)
            assert (node.requests, len(node.writers)) == (3, 1)

    asyncio.run(scenario())


def test_requests_at_once_have_a_connection_each_and_few_are_kept() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            await asyncio.gather(*(ask(peers) for _ in range(5)))
            assert len(node.writers) == 5
            await asyncio.gather(*(ask(peers) for _ in range(2)))
            assert len(node.writers) == 5

    asyncio.run(scenario())


def test_a_kept_connection_that_died_is_replaced_without_a_word() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            await ask(peers)
            await node.hang_up()
            await ask(peers)
            assert (node.requests, len(node.writers)) == (2, 2)

    asyncio.run(scenario())


def test_a_node_that_dies_in_the_middle_of_a_call_is_tried_once_more_and_no_longer() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            await ask(peers)
            node.hangs_up = True
            with pytest.raises(NoAnswer, match="closed"):
                await ask(peers)
            assert node.requests == 3

    asyncio.run(scenario())


def test_a_silent_node_is_waited_for_once() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            await ask(peers)
            node.is_silent = True
            with pytest.raises(NoAnswer, match="in time"):
                await ask(peers, timeout_seconds=0.05)
            assert node.requests == 2

    asyncio.run(scenario())


def test_a_node_that_is_nowhere_and_one_that_refuses_are_failures() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            with pytest.raises(NoAnswer, match="node 3 is not known"):
                await ask(peers, broker_id=3)
        with pytest.raises(NoAnswer, match="cannot reach"):
            await ask(Peers(1, lambda broker_id: node.address, believed))

    asyncio.run(scenario())


def test_a_node_that_moved_is_asked_where_it_is_and_old_connections_are_closed() -> None:
    async def scenario() -> None:
        old, new = Node(), Node()
        async with served(new), peers_of(old) as peers:
            await ask(peers)
            old.address = new.address
            await ask(peers)
            assert (old.requests, new.requests) == (1, 1)
            await until_none_is_left(old)
            peers.close()
            await until_none_is_left(new)

    asyncio.run(scenario())


def test_a_connection_that_was_being_made_when_its_node_moved_is_not_kept() -> None:
    """One request is on its way to where the node was when another one learns where it is."""

    async def scenario() -> None:
        old, new = Node(), Node()
        connecting, moved = asyncio.Event(), asyncio.Event()

        async def slowly_believed(connection: Connection) -> None:
            if not connecting.is_set():
                connecting.set()
                await moved.wait()

        async with served(new), served(old):
            at = old.address
            peers = Peers(1, lambda broker_id: at, slowly_believed)
            first = asyncio.ensure_future(ask(peers))
            await connecting.wait()
            at = new.address
            await ask(peers)
            moved.set()
            await first
            await ask(peers)
            assert (old.requests, new.requests) == (1, 2)
            peers.close()
            await until_none_is_left(old)
            await until_none_is_left(new)

    asyncio.run(scenario())


def test_what_is_under_way_when_all_is_closed_is_answered_and_not_kept() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            node.may_answer.clear()
            asking = asyncio.ensure_future(ask(peers))
            await node.asked.wait()
            peers.close()
            node.may_answer.set()
            assert (await asking).coordinators == []
            await until_none_is_left(node)

    asyncio.run(scenario())


def test_a_caller_that_gives_up_leaves_no_answer_behind_for_the_next() -> None:
    async def scenario() -> None:
        node = Node()
        async with peers_of(node) as peers:
            node.may_answer.clear()
            asking = asyncio.ensure_future(ask(peers))
            await node.asked.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            node.may_answer.set()
            await ask(peers)
            assert len(node.writers) == 2

    asyncio.run(scenario())
