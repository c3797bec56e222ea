"""Gives up the session when the event loop is blocked.

The driver's threads keep a session alive whatever the loop does: a node that hangs on its
disk would lead forever. This thread asks the loop for a sign of life and, if none has come
for a third of a session, ends the session.

What stops the whole process stops this thread, too: then nothing is missed, and ZooKeeper
decides whether the session has survived the pause.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

# Checks without a sign of life; there are two checks in a third of a session.
_MISSES_MAX: Final = 2
_LOOKS_PER_SESSION: Final = 6


class Watchdog:
    """`abandon` is called once, on the watchdog's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, abandon: Callable[[], None]) -> None:
        self._loop = loop
        self._abandon = abandon
        self._has_answered = True
        self._misses = 0
        self._is_over = threading.Event()

    def start(self, session_timeout_ms: int) -> None:
        seconds = session_timeout_ms / 1000 / _LOOKS_PER_SESSION
        threading.Thread(
            target=self._run, args=(seconds,), name="loop-watchdog", daemon=True
        ).start()

    def stop(self) -> None:
        self._is_over.set()

    def _run(self, seconds: float) -> None:
        while not self._is_over.wait(seconds):
            self.look()

    def look(self) -> None:
        """Count missing signs, and ask again."""
        self._misses = 0 if self._has_answered else self._misses + 1
        if self._misses >= _MISSES_MAX:
            self.stop()
            self._abandon()
            return
        self._has_answered = False
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            # The loop was closed: there is nothing left to watch.
            self.stop()

    def _answer(self) -> None:
        self._has_answered = True
