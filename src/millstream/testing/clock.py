"""A clock that a test moves: retention, compaction, sessions, transactions.

`advance` moves the wall clock and the node's timers together. `freeze` stops the wall clock, so
that records get a known time; timers go on.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta


class MovableClock:
    def __init__(self) -> None:
        self._ahead_seconds = 0.0
        self._frozen_ms: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- for the node -----------------------------------------------------------------

    def now_ms(self) -> int:
        if self._frozen_ms is not None:
            return self._frozen_ms
        return time.time_ns() // 1_000_000 + int(self._ahead_seconds * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_seconds

    def drive(self, loop: asyncio.AbstractEventLoop) -> None:
        """The timers of this loop follow the clock from now on."""
        true_time = loop.time
        loop.time = lambda: true_time() + self._ahead_seconds  # type: ignore[method-assign]
        self._loop = loop

    # -- for the test -----------------------------------------------------------------

    def advance(
        self,
        *,
        milliseconds: float = 0,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        passed = timedelta(
            milliseconds=milliseconds, seconds=seconds, minutes=minutes, hours=hours, days=days
        ).total_seconds()
        if passed < 0:
            raise ValueError("time only goes forward")
        if self._frozen_ms is not None:
            self._frozen_ms += int(passed * 1000)
        self._ahead_seconds += passed
        if self._loop is not None and not self._loop.is_closed():
            # It sleeps until its next timer: it has to look again.
            self._loop.call_soon_threadsafe(lambda: None)

    def freeze(self, at: str | datetime | None = None) -> None:
        """Stop the wall clock, now or at a time such as `2026-01-01T00:00Z`."""
        if at is None:
            self._frozen_ms = self.now_ms()
            return
        self._frozen_ms = milliseconds(at)

    def release(self) -> None:
        """The wall clock goes on, as far ahead as it was advanced."""
        self._frozen_ms = None


def milliseconds(at: str | datetime) -> int:
    """Since 1970. A time without a zone is UTC."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
