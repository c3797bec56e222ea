"""Large batches are checked in a thread, one at a time: each may take the memory of a large batch
unpacked. Clients take turns, so that one with hundreds of them delays the others by one check.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class HeavyChecks:
    def __init__(self) -> None:
        self._is_under_way = False
        # The checks that wait, by client, first come, first served. No line is empty.
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        return sum(len(line) for line in self._lines.values())

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """To be held during one check for this client."""
        if self._is_under_way:
            await self._stand_in_line(client)
        self._is_under_way = True
        try:
            yield
        finally:
            self._end(client)

    async def _stand_in_line(self, client: str) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # Its turn came in the same moment.
                self._end(client)
            raise

    def _end(self, client: str) -> None:
        # Behind those who came while it was checked.
        if client in self._lines:
            self._lines[client] = self._lines.pop(client)
        # Nobody gets in between: the turn passes to the next in line.
        self._is_under_way = self._let_next_in()

    def _let_next_in(self) -> bool:
        while self._lines:
            client = next(iter(self._lines))
            line = self._lines[client]
            place = line.popleft()
            if not line:
                del self._lines[client]
            if not place.done():
                place.set_result(None)
                return True
        return False
