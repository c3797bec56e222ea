import asyncio

import pytest

from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.stores.store import CoordinationFailed, Create, Node, Put


def test_sessions_share_the_tree_and_expiry_takes_only_ones_own_nodes():
    async def scenario():
        tree = MemoryTree()
        first, second = tree.open_session(), tree.open_session()
        fired = []
        await first.commit([Create("/first", is_ephemeral=True), Create("/both", b"1")])
        await second.commit([Create("/second", is_ephemeral=True), Put("/both", b"2")])
        await second.get("/first", lambda: fired.append("gone"))
        first.on_end(lambda: fired.append("ended"))
        first.expire()
        assert fired == ["gone", "ended"]
        assert set(await second.tree("/")) == {"/second", "/both"}
        assert await second.get("/both") == Node(b"2", 1)
        with pytest.raises(CoordinationFailed):
            await first.get("/both")

    asyncio.run(scenario())


def test_every_transaction_that_happens_raises_the_count():
    async def scenario():
        tree = MemoryTree()
        store = tree.open_session()
        await store.commit([Create("/a"), Create("/b")])
        await store.commit([Put("/a", b"")])
        assert tree.zxid == 2

    asyncio.run(scenario())
