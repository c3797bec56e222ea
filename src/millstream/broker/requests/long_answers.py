"""Answers that take several turns (`turns`): a few at a time of one kind for one client.

Such an answer is in memory as objects until a thread has encoded it, and all of them share one
thread. A client with hundreds of connections could ask for one over each, and together they would
take more memory than the node has. So while a few are under way, further requests of the same
kind from that client wait in line, before anything is done for them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from millstream.broker.requests.request import Request

UNDER_WAY_MAX: Final = 4

# The client, and the key of the API.
_Kind = tuple[str, int]


class LongAnswers:
    def __init__(self) -> None:
        self._under_way: dict[_Kind, int] = {}
        # Requests that wait, first come, first served. No line is empty.
        self._lines: dict[_Kind, deque[asyncio.Future[None]]] = {}

    async def enter(self, request: Request) -> None:
        """`begin`, for a request of which nobody knew it before a part was done. Once those before
        have ended: all of them may have come in the same moment."""
        if not request.is_long and self.must_wait(request):
            await self._stand_in_line(_kind(request))
        self.begin(request)

    def begin(self, request: Request) -> None:
        """Its answer takes several turns; `end` has to follow."""
        if not request.is_long:
            request.is_long = True
            kind = _kind(request)
            self._under_way[kind] = self._under_way.get(kind, 0) + 1

    def end(self, request: Request) -> None:
        """The answer is encoded, or given up. No effect on a short one."""
        if not request.is_long:
            return
        request.is_long = False
        kind = _kind(request)
        left = self._under_way[kind] - 1
        if left:
            self._under_way[kind] = left
        else:
            del self._under_way[kind]
        self._let_next_in(kind)

    def must_wait(self, request: Request) -> bool:
        """Not for a node of the cluster: clients wait for what it asks."""
        if request.connection.proved_node_id >= 0:
            return False
        kind = _kind(request)
        return kind in self._lines or self._under_way.get(kind, 0) >= UNDER_WAY_MAX

    @asynccontextmanager
    async def in_line(self, request: Request) -> AsyncIterator[None]:
        """Enter when those before have ended. To be left when it is known whether the answer is a
        long one: if not, the next in line may come."""
        kind = _kind(request)
        # Since it was asked, all before may have ended: then nobody would let it in.
        if self.must_wait(request):
            await self._stand_in_line(kind)
        try:
            yield
        finally:
            if not request.is_long:
                self._let_next_in(kind)

    async def _stand_in_line(self, kind: _Kind) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(kind, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # Its turn came in the same moment.
                self._let_next_in(kind)
            raise

    def _let_next_in(self, kind: _Kind) -> None:
        if self._under_way.get(kind, 0) >= UNDER_WAY_MAX:
            # One came in between, and will let in the next when it ends.
            return
        line = self._lines.get(kind)
        while line:
            place = line.popleft()
            if not line:
                del self._lines[kind]
            if not place.done():
                place.set_result(None)
                return


def _kind(request: Request) -> _Kind:
    return request.connection.client, request.header.api_key
