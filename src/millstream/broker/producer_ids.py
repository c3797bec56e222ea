"""Producer ids, from blocks that the coordination store hands out once and for all."""

import asyncio

from millstream.cluster.controller import Controller


class ProducerIds:
    """A block is stored before its first id is used; a crash wastes the rest of it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        async with self._refill:
            if self._next == self._end:
                block = await self._controller.allocate_producer_ids()
                self._next, self._end = block.start, block.stop
            self._next += 1
            return self._next - 1
