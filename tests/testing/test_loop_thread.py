import asyncio
import threading

import pytest

from millstream.testing.clock import MovableClock
from millstream.testing.loop_thread import LoopThread


def test_work_runs_in_the_thread_and_raises_in_the_caller() -> None:
    thread = LoopThread("work", MovableClock())

    async def name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise KeyError("why")

    assert thread.run(name(), seconds_max=10) == "work"
    with pytest.raises(KeyError, match="why"):
        thread.run(fail(), seconds_max=10)
    thread.stop()
    assert thread.loop.is_closed()


def test_timers_follow_the_clock() -> None:
    clock = MovableClock()
    thread = LoopThread("timers", clock)
    began = threading.Event()

    async def sleep() -> bool:
        asyncio.get_running_loop().call_soon(began.set)
        await asyncio.sleep(3600)
        return True

    done = asyncio.run_coroutine_threadsafe(sleep(), thread.loop)
    assert began.wait(10)
    clock.advance(hours=2)
    assert done.result(10)
    thread.stop()
