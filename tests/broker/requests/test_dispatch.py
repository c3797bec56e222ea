"""What is kept of a request until it is answered."""

import asyncio
from queue import SimpleQueue
from typing import Any

import pytest

from millstream.broker.requests.long_answers import LongAnswers
from millstream.broker.requests.request import Request
from millstream.wire.apis.describe_groups import DescribeGroupsRequest
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until


def test_a_request_that_waits_in_line_counts_as_received(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: SimpleQueue[tuple[LongAnswers, Any, asyncio.AbstractEventLoop]] = SimpleQueue()

    def must_wait(self: LongAnswers, request: Request) -> bool:
        if request.header.api_key != DescribeGroupsRequest.api.key:
            return False
        waiting.put((self, request.connection, asyncio.get_running_loop()))
        return True

    monkeypatch.setattr(LongAnswers, "must_wait", must_wait)
    names = [f"{number}-" + "x" * 30_000 for number in range(20)]
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        client.send(DescribeGroupsRequest(groups=names), 0)
        line, connection, loop = waiting.get(timeout=60)

        async def held_bytes() -> int:
            await asyncio.sleep(0)
            return int(connection._host.memory.held_bytes)

        def held_now() -> int:
            return asyncio.run_coroutine_threadsafe(held_bytes(), loop).result(60)

        wait_until(lambda: held_now() >= 20 * 30_000, "it counts")
        kind = (connection.client, DescribeGroupsRequest.api.key)
        loop.call_soon_threadsafe(line._let_next_in, kind)
        assert len(client.receive(DescribeGroupsRequest, 0).groups) == 20
        assert held_now() == 0
