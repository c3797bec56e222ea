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
        await self.ensure()
        return self.take()

    async def ensure(self) -> None:
        """One id at least is at hand for `take`, until the next await."""
        async with self._refill:
            if self._next == self._end:
                block = await self._controller.allocate_producer_ids()
                self._next, self._end = block.start, block.stop

    def take(self) -> int:
        assert self._next < self._end, "take without ensure"
        self._next += 1
        return self._next - 1
