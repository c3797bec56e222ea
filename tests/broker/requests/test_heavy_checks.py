"""Large batches are checked one at a time, and clients take turns."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest

from millstream.broker.handlers import produce as produce_module
from millstream.broker.requests.batch_checks import check_heavy
from millstream.broker.requests.heavy_checks import HeavyChecks
from millstream.errors import KafkaCode
from millstream.model import Codec
from millstream.records.validation import LIGHT
from tests.broker.handlers.exchanges import batch, produce
from tests.support.attacks import produce_many
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

MANY = 50


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


class Checks:
    """Checks that end one by one, when the test says so."""

    def __init__(self) -> None:
        self.turns = HeavyChecks()
        self.served: list[str] = []
        self.under_way = 0
        self._go_on = asyncio.Semaphore(0)

    async def check(self, client: str) -> None:
        async with self.turns.turn(client):
            self.under_way += 1
            assert self.under_way == 1
            self.served.append(client)
            await self._go_on.acquire()
            self.under_way -= 1

    def begin(self, client: str) -> "asyncio.Task[None]":
        return asyncio.ensure_future(self.check(client))

    async def end_one(self) -> None:
        self._go_on.release()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_client_with_many_delays_another_by_one_check() -> None:
    async def scenario() -> None:
        checks = Checks()
        tasks = [checks.begin("many") for _ in range(MANY)]
        await settle()
        tasks.append(checks.begin("other"))
        await settle()
        assert checks.served == ["many"]
        await checks.end_one()
        assert checks.served == ["many", "other"]
        for _ in range(MANY):
            await checks.end_one()
        await asyncio.gather(*tasks)
        assert checks.served == ["many", "other"] + ["many"] * (MANY - 1)
        assert checks.turns.waiting == 0

    run(scenario)


def test_clients_take_turns_and_each_is_served_in_order() -> None:
    async def scenario() -> None:
        checks = Checks()
        tasks = [checks.begin(client) for client in "aaabbc"]
        await settle()
        for _ in tasks:
            await checks.end_one()
        await asyncio.gather(*tasks)
        assert "".join(checks.served) == "abcaba"

    run(scenario)


def test_who_leaves_the_line_is_not_waited_for() -> None:
    async def scenario() -> None:
        checks = Checks()
        first, leaving, last = (checks.begin(client) for client in "abc")
        await settle()
        leaving.cancel()
        await checks.end_one()
        assert checks.served == ["a", "c"]
        await checks.end_one()
        await asyncio.gather(first, last)
        assert checks.turns.waiting == 0

    run(scenario)


def test_who_leaves_as_its_turn_comes_lets_the_next_one_in() -> None:
    async def scenario() -> None:
        checks = Checks()
        async with checks.turns.turn("a"):
            leaving, last = (checks.begin(client) for client in "bc")
            await settle()
        # It was told to go on, and has not.
        leaving.cancel()
        await settle()
        assert checks.served == ["c"]
        await checks.end_one()
        await last

    run(scenario)


def test_fifty_large_produces_of_one_address_delay_another_by_one_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    first_begins, may_end = threading.Event(), threading.Event()

    async def note(body: Any, place: Any, work: Any) -> Any:
        seen.append(body.topics[0].name)
        if not first_begins.is_set():
            first_begins.set()
            await asyncio.get_running_loop().run_in_executor(None, may_end.wait)
        return await check_heavy(body, place, work)

    monkeypatch.setattr(produce_module, "check_heavy", note)
    large = bytes(batch(bytes(LIGHT), codec=Codec.ZSTD))
    with Broker(topics={"hostile": 1, "good": 1}) as broker, ExitStack() as stack:

        def connect(address: str) -> RawClient:
            client = RawClient(broker.bootstrap, source_address=(address, 0))
            return stack.enter_context(client)

        hostile = [connect("127.0.0.66") for _ in range(MANY)]
        for client in hostile:
            client.sock.sendall(produce_many([large], "hostile"))
        assert first_begins.wait(20)
        good = connect("127.0.0.1")
        good.sock.sendall(produce_many([large], "good"))
        # Sent after it on another connection, and answered: the node has read both.
        assert produce(connect("127.0.0.1"), "good", batch(b"v")).error_code == KafkaCode.NONE
        may_end.set()
        good.receive_frame()
        for client in hostile:
            client.receive_frame()
    assert seen == ["hostile", "good"] + ["hostile"] * (MANY - 1)
