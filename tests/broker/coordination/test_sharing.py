import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.coordination import sharing as module
from millstream.broker.coordination.share_sessions import SessionKey, Where
from millstream.broker.coordination.sharing import Sharing
from millstream.config import BrokerConfig

SESSIONS = 5
PLACES = [Where(UUID(int=1), number) for number in range(20)]


class Connection:
    client = "10.0.0.1"
    is_closed = False
    on_closed: Callable[[], None] | None = None


def test_the_sessions_of_a_closed_connection_end_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    # However little is done, the turn is over.
    seconds = itertools.count()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    node: Any = SimpleNamespace(config=BrokerConfig({}))
    unused: Any = None

    async def scenario() -> None:
        sharing = Sharing(node, unused, unused)
        # So many partitions were looked for in each turn of the loop.
        looked_for = [0]
        monkeypatch.setattr(sharing.partitions, "find", lambda key: add_one(looked_for))
        connection = Connection()
        for number in range(SESSIONS):
            sharing.sessions.open(SessionKey("g", f"m{number}"), connection, PLACES)
        assert connection.on_closed is not None
        connection.on_closed()
        assert len(sharing.sessions) == 0, "their slots are free at once"
        async with asyncio.timeout(20):
            while sum(looked_for) < SESSIONS * len(PLACES):
                await asyncio.sleep(0)
                looked_for.append(0)
        assert max(looked_for) == 1

    asyncio.run(scenario())


def add_one(counts: list[int]) -> None:
    counts[-1] += 1


def test_a_member_that_is_back_keeps_what_it_acquires(monkeypatch: pytest.MonkeyPatch) -> None:
    node: Any = SimpleNamespace(config=BrokerConfig({}))
    unused: Any = None

    async def scenario() -> None:
        sharing = Sharing(node, unused, unused)
        looked_for: list[object] = []
        monkeypatch.setattr(sharing.partitions, "find", looked_for.append)
        key = SessionKey("g", "m")
        session = sharing.sessions.open(key, Connection(), PLACES)
        ending = asyncio.ensure_future(sharing.end_session(session))
        await asyncio.sleep(0)
        sharing.sessions.open(key, Connection(), PLACES)
        await ending
        assert looked_for == []

    asyncio.run(scenario())
