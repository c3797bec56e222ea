import asyncio
import threading

import pytest

from millstream.broker.security import slow_checks
from millstream.broker.security.slow_checks import SlowChecks
from millstream.security.sasl.outcome import AuthenticationFailed


def test_so_many_wait_and_no_more(monkeypatch):
    monkeypatch.setattr(slow_checks, "_WAITING_MAX", 3)

    async def scenario():
        checks, go = SlowChecks(), threading.Event()
        waiting = [asyncio.create_task(checks.run(go.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(AuthenticationFailed, match="too many"):
            await checks.run(lambda: True)
        go.set()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert await checks.run(lambda: 7) == 7
        checks.stop()

    asyncio.run(scenario())
