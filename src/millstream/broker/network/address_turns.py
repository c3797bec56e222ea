"""Turns on the loop, by address.

A connection that has sent many requests at once is served for a moment, and then rests until
the others had a turn. Connections of one address rest in one line, and one of them continues
in each iteration of the loop: two hundred connections get no more of it than one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# How long one address's pipelined requests may occupy the loop before others get a turn.
TURN_SECONDS_MAX: Final = 0.002

GoOn = Callable[[], None]


class AddressTurns:
    def __init__(self) -> None:
        # First come, first served. No line is empty.
        self._resting: dict[str, deque[GoOn]] = {}
        # The address whose connection continues right now.
        self._current: str | None = None

    def is_over(self, address: str) -> bool:
        """Must a connection of this address rest, because others of it are in line?"""
        return address in self._resting and address != self._current

    def rest(self, address: str, go_on: GoOn) -> None:
        """Call `go_on` in a later iteration, when the line before it is served."""
        line = self._resting.get(address)
        if line is not None:
            line.append(go_on)
            return
        self._resting[address] = deque([go_on])
        asyncio.get_running_loop().call_soon(self._next, address)

    def _next(self, address: str) -> None:
        line = self._resting[address]
        go_on = line.popleft()
        if line:
            asyncio.get_running_loop().call_soon(self._next, address)
        else:
            del self._resting[address]
        self._current = address
        try:
            go_on()
        finally:
            self._current = None
