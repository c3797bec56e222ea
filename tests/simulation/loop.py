"""An event loop in virtual time: one for each run of a process.

Callbacks go into the queue of the world, so that everything happens in one order, from one seed.
When the process ends, nothing of its loop runs any more.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

# (delay in ms, call): the world runs the call after the delay.
Schedule = Callable[[float, Callable[[], None]], None]
_COMPLAINT = "Task was destroyed but it is pending!"


class VirtualLoop(asyncio.AbstractEventLoop):
    def __init__(
        self,
        schedule: Schedule,
        now_ms: Callable[[], float],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._schedule = schedule
        self._now_ms = now_ms
        self._failed = failed
        self.is_alive = True

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = asyncio.Handle(callback, args, self, context)
        self._schedule(0.0, lambda: self.run(handle._run, handle))
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._schedule(max(delay, 0.0) * 1000, lambda: self.run(handle._run, handle))
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def run(self, call: Callable[[], object], handle: asyncio.Handle | None = None) -> None:
        """Call something as code of this process, if the process still runs."""
        if not self.is_alive or (handle is not None and handle.cancelled()):
            return
        asyncio._set_running_loop(self)
        try:
            call()
        finally:
            asyncio._set_running_loop(None)

    def time(self) -> float:
        return self._now_ms() / 1000

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **given: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self)
        task.add_done_callback(self._look_at)
        return task

    def _look_at(self, task: "asyncio.Task[Any]") -> None:
        """A failure counts at once, and not when the task is collected."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.is_alive and isinstance(error, BaseException):
            self._failed(error)
        elif self.is_alive and context.get("message") != _COMPLAINT:
            self._failed(AssertionError(str(context.get("message"))))
