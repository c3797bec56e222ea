"""Topics with many partitions are made and deleted in turns."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.node import topics as module
from millstream.broker.node.topics import Topics


def test_turns_rest_only_while_clients_use_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _rests_of_a_deletion(monkeypatch, is_in_use=True) == [module._REST_SECONDS] * 2
    assert _rests_of_a_deletion(monkeypatch, is_in_use=False) == [0] * 2


def _rests_of_a_deletion(monkeypatch: pytest.MonkeyPatch, *, is_in_use: bool) -> list[float]:
    """Between three turns."""
    left = [False, False, True]
    is_over = asyncio.Event()
    rests: list[float] = []

    def finish_deletions(at_most: int) -> bool:
        if len(left) == 1:
            is_over.set()
        return left.pop(0)

    store = SimpleNamespace(finish_deletions=finish_deletions)
    node: Any = SimpleNamespace(metadata=None, disk=SimpleNamespace(store=store))

    async def no_internal_topic(name: str) -> None:
        raise AssertionError(name)

    async def delete() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def call_later(delay: float, *call: Any) -> asyncio.TimerHandle:
            rests.append(delay)
            return later(0, *call)

        monkeypatch.setattr(loop, "call_later", call_later)
        topics = Topics(node, ensure_internal=no_internal_topic, is_in_use=lambda: is_in_use)
        topics._finish_deletions()
        await is_over.wait()

    asyncio.run(delete())
    return rests
