"""Producer ids, from blocks that the coordination store hands out exactly once."""

import asyncio
import logging

from millstream.cluster.metadata import ClusterMetadata
from millstream.errors import KafkaError

log = logging.getLogger(__name__)


class ProducerIds:
    """A block has a thousand ids (`PRODUCER_ID_BLOCK`). It is stored before its first id is used; a
    crash wastes the rest of it.

    A member of a cluster keeps a spare block: a thousand new producers can start while ZooKeeper is
    down.
    """

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()
        self._keeps_spare = False
        self._spare: range | None = None
        self._fetching: asyncio.Task[None] | None = None

    def keep_spare(self) -> None:
        """Add a block, to be used when the current one is exhausted."""
        self._keeps_spare = True
        self._fetch_spare_if_none()

    async def stop(self) -> None:
        self._keeps_spare = False
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    async def next(self) -> int:
        await self.ensure()
        return self.take()

    async def ensure(self) -> None:
        """Make sure that `take` has at least one id, until the next await."""
        async with self._refill:
            if self._next == self._end:
                block, self._spare = self._spare, None
                if block is None:
                    block = await self._metadata.allocate_producer_ids()
                self._next, self._end = block.start, block.stop
        self._fetch_spare_if_none()

    def take(self) -> int:
        assert self._next < self._end, "take without ensure"
        self._next += 1
        return self._next - 1

    def _fetch_spare_if_none(self) -> None:
        is_fetching = self._fetching is not None and not self._fetching.done()
        if self._keeps_spare and self._spare is None and not is_fetching:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_spare())

    async def _fetch_spare(self) -> None:
        try:
            self._spare = await self._metadata.allocate_producer_ids()
        except KafkaError as error:
            # The next request for an id tries again.
            log.debug("no block of producer ids to spare: %s", error)
