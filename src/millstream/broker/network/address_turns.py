"""Turns on the loop, by address.

A connection that has sent many requests at once is served for a moment, and then rests until
the others had a turn. Connections of one address rest in one line, and one of them continues
at a time: two hundred connections get no more of the loop than one.

Who has rested continues in the next iteration if nobody else used this one, and after a few
iterations at the latest. A request that takes several of them, such as a produce that waits for
the disk, then does not wait for such a turn in each.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

# How long one address's pipelined requests may occupy the loop before others get a turn.
TURN_SECONDS_MAX: Final = 0.001
# An iteration of the loop that takes longer has served somebody.
QUIET_SECONDS_MAX: Final = 0.0001
# As many iterations are left to the others.
ITERATIONS_MAX: Final = 4

GoOn = Callable[[], None]


class _Line:
    """The connections of one address that rest, first come, first served."""

    __slots__ = ("iterations", "looked_at", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[GoOn] = deque()
        # Since the last turn.
        self.iterations = 0
        self.looked_at = time.perf_counter()

    def is_due(self) -> bool:
        """Called once in each iteration."""
        now = time.perf_counter()
        is_quiet = now - self.looked_at < QUIET_SECONDS_MAX
        self.looked_at = now
        self.iterations += 1
        return is_quiet or self.iterations >= ITERATIONS_MAX


class AddressTurns:
    def __init__(self) -> None:
        # No line is empty.
        self._resting: dict[str, _Line] = {}
        # The address whose connection continues right now.
        self._current: str | None = None

    def is_over(self, address: str) -> bool:
        """Must a connection of this address rest, because others of it are in line?"""
        return address in self._resting and address != self._current

    def rest(self, address: str, go_on: GoOn) -> None:
        """Call `go_on` in a later iteration, when the line before it is served."""
        line = self._resting.get(address)
        if line is None:
            line = self._resting[address] = _Line()
            asyncio.get_running_loop().call_soon(self._next, address)
        line.waiting.append(go_on)

    def _next(self, address: str) -> None:
        line = self._resting[address]
        if not line.is_due():
            asyncio.get_running_loop().call_soon(self._next, address)
            return
        go_on = line.waiting.popleft()
        if not line.waiting:
            del self._resting[address]
        self._current = address
        try:
            go_on()
        finally:
            self._current = None
            if line.waiting:
                line.iterations = 0
                line.looked_at = time.perf_counter()
                asyncio.get_running_loop().call_soon(self._next, address)
