"""Turns on the loop, by address.

A connection that has sent many requests at once is served for a moment, and then rests until
the others had a turn. Connections of one address rest in one line, the lines take turns, and one
connection continues at a time: two hundred connections get no more of the loop than one.

While no other address sends anything, the next connection continues in the next iteration of the
loop, if nobody used this one, and after a few iterations at the latest. While others do, they have
the loop for several milliseconds. A request that takes several iterations, such as a produce that
waits for the disk, then meets no such turn in each of them; and a loop that sleeps in between gets
a core from the kernel as soon as something arrives.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

# How long one address's pipelined requests may occupy the loop before others get a turn.
TURN_SECONDS_MAX: Final = 0.001
# How long the others then have it to themselves, and for how long they count after they sent
# something.
REST_SECONDS: Final = 0.004
ACTIVE_SECONDS: Final = 0.05
# An iteration of the loop that takes longer has served somebody.
QUIET_SECONDS_MAX: Final = 0.0001
# As many iterations are left to the others.
ITERATIONS_MAX: Final = 4

GoOn = Callable[[], None]


class AddressTurns:
    def __init__(self) -> None:
        # The connections that rest, by address, first come, first served. No line is empty.
        self._lines: dict[str, deque[GoOn]] = {}
        # The address whose connection continues right now.
        self._current: str | None = None
        # When each address was last heard, by the loop's time.
        self._heard: dict[str, float] = {}
        # Since the last turn.
        self._iterations = 0
        self._looked_at = 0.0

    def hear(self, address: str, now: float) -> None:
        """A connection of this address has received something."""
        self._heard[address] = now

    def forget(self, address: str) -> None:
        """Its last connection is closed."""
        self._heard.pop(address, None)

    def is_over(self, address: str) -> bool:
        """Must a connection of this address rest, because others of it are in line?"""
        return address in self._lines and address != self._current

    def rest(self, address: str, go_on: GoOn) -> None:
        """Call `go_on` in a later iteration, when the line before it is served."""
        if not self._lines and self._current is None:
            self._begin_rest()
        self._lines.setdefault(address, deque()).append(go_on)

    def _begin_rest(self) -> None:
        self._iterations = 0
        self._looked_at = time.perf_counter()
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Called once in each iteration."""
        loop = asyncio.get_running_loop()
        if self._are_others_active(loop.time()):
            loop.call_later(REST_SECONDS, self._next)
        elif self._is_due():
            self._next()
        else:
            loop.call_soon(self._look)

    def _are_others_active(self, now: float) -> bool:
        since = now - ACTIVE_SECONDS
        return any(at > since and who not in self._lines for who, at in self._heard.items())

    def _is_due(self) -> bool:
        now = time.perf_counter()
        is_quiet = now - self._looked_at < QUIET_SECONDS_MAX
        self._looked_at = now
        self._iterations += 1
        return is_quiet or self._iterations >= ITERATIONS_MAX

    def _next(self) -> None:
        address = next(iter(self._lines))
        line = self._lines.pop(address)
        go_on = line.popleft()
        if line:
            # Behind the other addresses.
            self._lines[address] = line
        self._current = address
        try:
            go_on()
        finally:
            self._current = None
            if self._lines:
                self._begin_rest()
