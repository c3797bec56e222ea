"""Reads that a change comes into the middle of."""

import asyncio

from millstream.cluster import znodes
from millstream.cluster.reading import Reader
from millstream.cluster.state import ClusterImage
from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.stores.store import Create, Delete, Put


def test_the_controller_and_its_epoch_are_of_one_moment():
    async def scenario():
        store = MemoryTree().open_session()
        first, second = (znodes.encode_controller(number, "s", 0) for number in (1, 2))
        await store.commit(
            [Create(znodes.CONTROLLER_EPOCH, b"5"), Create(znodes.CONTROLLER, first)]
        )
        exists, takeovers = store.exists, [1]

        async def taken_over_meanwhile(path, on_change=None):
            if takeovers:
                takeovers.pop()
                await store.commit(
                    [
                        Delete(znodes.CONTROLLER),
                        Create(znodes.CONTROLLER, second),
                        Put(znodes.CONTROLLER_EPOCH, b"6"),
                    ]
                )
            return await exists(path, on_change)

        store.exists = taken_over_meanwhile
        found = await Reader(store, ClusterImage(), lambda mark: None).read({("controller",)})
        read = found.controller
        assert (read.broker_id, read.epoch, read.epoch_version) == (2, 6, 1)

    asyncio.run(scenario())
