"""The end of a server; its listeners are tested in broker/node/test_listeners.py."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from millstream.broker.network.server import Limits, Server

LIMITS = Limits(
    frame_bytes_max=1 << 20,
    connections_max=10,
    connections_per_ip_max=10,
    connections_per_ip_overrides={},
    idle_seconds_max=600,
    request_bytes_max=1 << 20,
)


def test_a_request_that_has_just_come_begins_before_the_server_ends() -> None:
    """A task that is cancelled before it begins leaves a coroutine in it that nobody closes."""
    begun = []

    async def answer() -> None:
        begun.append("answer")
        await asyncio.Event().wait()

    async def wait_for_it(answered: Coroutine[Any, Any, None]) -> None:
        await answered

    async def play() -> None:
        server = Server(lambda connection, frame: [], LIMITS)
        server.start()
        server.spawn(wait_for_it(answer()))
        await server.stop()

    asyncio.run(play())
    assert begun == ["answer"]
