"""An event loop in its own thread: a test calls, and the coroutine runs there."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from millstream.testing.clock import MovableClock

_STOP_SECONDS_MAX: Final = 30.0
_Result = TypeVar("_Result")


class LoopThread:
    def __init__(self, name: str, clock: MovableClock) -> None:
        """The loop's timers follow `clock`."""
        self.loop = asyncio.new_event_loop()
        clock.drive(self.loop)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _Result], *, seconds_max: float) -> _Result:
        """What `work` returns or raises; TimeoutError if it takes too long."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds_max)

    def stop(self) -> None:
        self.run(_cancel_others(), seconds_max=_STOP_SECONDS_MAX)
        # Its threads end now, and not some time after the loop.
        self.run(self.loop.shutdown_default_executor(), seconds_max=_STOP_SECONDS_MAX)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), "the loop did not stop"
        self.loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
