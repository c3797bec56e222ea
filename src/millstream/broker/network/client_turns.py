"""Turns on the loop, by client: all connections of one address, or of one user at an address.

A connection that has sent many requests at once is served for a moment, and then rests until
the others had a turn. Connections of one client rest in one line, the lines take turns, and one
connection continues at a time: two hundred connections get no more of the loop than one.

The next connection continues in the next iteration of the loop, if nobody used this one, and after
a few iterations at the latest. A request that takes several of them, such as a produce that waits
for the disk, then does not wait for such a turn in each. While several clients send something,
all lines rest after a few turns: a process that never sleeps gets its core from the kernel late.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

# How long one client's pipelined requests may occupy the loop before others get a turn. A request
# that takes several iterations may wait for such a turn in each, so turns are short while several
# clients send something; a client that is alone would only be interrupted more often.
TURN_SECONDS_MAX: Final = 0.001
SHARED_TURN_SECONDS_MAX: Final = 0.0003
# After so many turns the others have the loop to themselves, for the shortest time that uvloop can
# sleep. More would cost a producer that is alone on its machine too much of its speed.
TURNS_BEFORE_REST: Final = 12
REST_SECONDS: Final = 0.001
# A turn counts as so many if more connections of the same client are in line.
TURNS_OF_A_CROWD: Final = 3
# For how long a client counts after it has sent something.
ACTIVE_SECONDS: Final = 0.05
# An iteration of the loop that takes longer has served somebody.
QUIET_SECONDS_MAX: Final = 0.0001
# As many iterations are left to the others.
ITERATIONS_MAX: Final = 4

GoOn = Callable[[], None]


class ClientTurns:
    def __init__(self) -> None:
        # The connections that rest, by client, first come, first served. No line is empty.
        self._lines: dict[str, deque[GoOn]] = {}
        # The client whose connection continues right now.
        self._current: str | None = None
        # Who was heard last, and when; and when that was somebody else than before. By the loop's
        # time.
        self._last_heard = ""
        self._heard_at = -ACTIVE_SECONDS
        self._changed_at = -ACTIVE_SECONDS
        # Since the last rest.
        self._turns = 0
        # Since the last turn.
        self._iterations = 0
        self._looked_at = 0.0

    def hear(self, client: str, now: float) -> None:
        """A connection of this client has received something."""
        self._heard_at = now
        if client != self._last_heard:
            self._last_heard = client
            self._changed_at = now

    def has_others(self, client: str) -> bool:
        """Has anybody but this client sent something in the last moments? Any thread may ask.

        Not whether several have: a client that waits for the answer to a large request is silent,
        and the only one that is heard then is the one to be spared."""
        heard_at = self._changed_at if client == self._last_heard else self._heard_at
        return time.monotonic() - heard_at < ACTIVE_SECONDS

    def is_in_use(self) -> bool:
        """Has anybody sent something in the last moments?"""
        return time.monotonic() - self._heard_at < ACTIVE_SECONDS

    def is_shared(self) -> bool:
        """Have several clients sent something in the last moments? Any thread may ask."""
        return time.monotonic() - self._changed_at < ACTIVE_SECONDS

    def turn_seconds(self) -> float:
        """How long a connection may be served that has sent several requests at once."""
        return SHARED_TURN_SECONDS_MAX if self.is_shared() else TURN_SECONDS_MAX

    def is_over(self, client: str) -> bool:
        """Must a connection of this client rest, because others of it are in line?"""
        return client in self._lines and client != self._current

    def rest(self, client: str, go_on: GoOn) -> None:
        """Call `go_on` in a later iteration, when the line before it is served."""
        if not self._lines and self._current is None:
            self._begin_rest()
        self._lines.setdefault(client, deque()).append(go_on)

    def _begin_rest(self) -> None:
        self._iterations = 0
        self._looked_at = time.perf_counter()
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Called once in each iteration."""
        loop = asyncio.get_running_loop()
        if self._turns >= TURNS_BEFORE_REST and self.is_shared():
            self._turns = 0
            loop.call_later(REST_SECONDS, self._next)
        elif self._is_due():
            self._next()
        else:
            loop.call_soon(self._look)

    def _is_due(self) -> bool:
        now = time.perf_counter()
        is_quiet = now - self._looked_at < QUIET_SECONDS_MAX
        self._looked_at = now
        self._iterations += 1
        return is_quiet or self._iterations >= ITERATIONS_MAX

    def _next(self) -> None:
        client = next(iter(self._lines))
        line = self._lines.pop(client)
        go_on = line.popleft()
        if line:
            # Behind the other clients.
            self._lines[client] = line
        self._current = client
        self._turns += TURNS_OF_A_CROWD if line else 1
        try:
            go_on()
        finally:
            self._current = None
            if self._lines:
                self._begin_rest()
