"""One suite that every coordination store must pass."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cluster.stores.embedded import open_embedded_store
from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.stores.store import (
    BadVersion,
    Check,
    CoordinationFailed,
    CoordinationStore,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotApplied,
    NotEmpty,
    Put,
    parent_of,
)
from millstream.cluster.stores.zookeeper import open_zookeeper
from tests.support.zookeeper import ensemble_at, new_root


class Drivers:
    """Opens sessions on one tree; each is opened after the one before was closed."""

    def __init__(self, open_session: Callable[[], Awaitable[CoordinationStore]]) -> None:
        self.open = open_session

    def run(self, scenario: Callable[[CoordinationStore], Awaitable[None]]) -> None:
        async def with_store() -> None:
            store = await self.open()
            try:
                await scenario(store)
            finally:
                await store.close()

        asyncio.run(with_store())


def memory_drivers() -> Drivers:
    tree = MemoryTree()

    async def open_session() -> CoordinationStore:
        return tree.open_session()

    return Drivers(open_session)


def zookeeper_drivers(address: str) -> Drivers:
    ensemble = ensemble_at(address, root=new_root(), session_timeout_ms=6_000)
    return Drivers(lambda: open_zookeeper(ensemble))


ON_ZOOKEEPER = [pytest.mark.slow, pytest.mark.java, pytest.mark.xdist_group("zookeeper")]


@pytest.fixture(
    params=[
        "memory",
        "embedded",
        pytest.param("zookeeper_of_spark", marks=ON_ZOOKEEPER),
        pytest.param("zookeeper_of_debian", marks=ON_ZOOKEEPER),
    ]
)
def drivers(request, tmp_path) -> Drivers:
    if request.param == "memory":
        return memory_drivers()
    if request.param == "embedded":
        return Drivers(lambda: open_embedded_store(tmp_path))
    return zookeeper_drivers(request.getfixturevalue(request.param))


def test_a_node_is_created_read_changed_and_deleted(drivers):
    async def scenario(store):
        assert await store.commit([Create("/a", b"one")]) == [0]
        assert await store.get("/a") == Node(b"one", 0)
        assert await store.commit([Put("/a", b"two", version=0)]) == [1]
        assert await store.get("/a") == Node(b"two", 1)
        assert await store.commit([Delete("/a", version=1)]) == [-1]
        assert not await store.exists("/a")

    drivers.run(scenario)


def test_what_is_not_there_cannot_be_read_changed_or_deleted(drivers):
    async def scenario(store):
        for read in (store.get, store.children):
            with pytest.raises(NoNode):
                await read("/a")
        for operation in (Put("/a", b""), Delete("/a"), Check("/a")):
            with pytest.raises(NoNode) as caught:
                await store.commit([operation])
            assert caught.value.operation == operation
        assert await store.tree("/a") == {}

    drivers.run(scenario)


def test_a_parent_must_be_there_and_must_last(drivers):
    async def scenario(store):
        with pytest.raises(NoNode):
            await store.commit([Create("/a/b")])
        await store.commit([Create("/e", is_ephemeral=True)])
        with pytest.raises(NoNode):
            await store.commit([Create("/e/b")])
        with pytest.raises(NodeExists):
            await store.commit([Create("/e")])

    drivers.run(scenario)


def test_a_node_with_children_cannot_be_deleted(drivers):
    async def scenario(store):
        await store.commit([Create("/a"), Create("/a/b")])
        with pytest.raises(NotEmpty):
            await store.commit([Delete("/a")])
        await store.commit([Delete("/a/b"), Delete("/a")])
        assert await store.children("/") == []

    drivers.run(scenario)


@pytest.mark.parametrize(
    "last", [Put("/a", b"", version=7), Check("/none"), Create("/a"), Delete("/a", version=3)]
)
def test_a_transaction_happens_whole_or_not_at_all(drivers, last):
    async def scenario(store):
        await store.commit([Create("/a", b"before"), Create("/old", b"old")])
        with pytest.raises(NotApplied) as caught:
            await store.commit(
                [
                    Create("/new"),
                    Create("/new/below"),
                    Put("/a", b"after"),
                    Delete("/old"),
                    Create("/old", b"again"),
                    last,
                ]
            )
        assert caught.value.operation == last
        assert await store.get("/a") == Node(b"before", 0)
        assert await store.tree("/") == {"/a": Node(b"before", 0), "/old": Node(b"old", 0)}
        assert await store.children("/") == ["a", "old"]

    drivers.run(scenario)


def test_operations_see_what_earlier_ones_of_the_transaction_did(drivers):
    async def scenario(store):
        versions = await store.commit(
            [
                Create("/a", b"0"),
                Put("/a", b"1", version=0),
                Check("/a", version=1),
                Delete("/a", version=1),
                Create("/a", b"2"),
            ]
        )
        assert versions == [0, 1, 1, -1, 0]
        assert await store.get("/a") == Node(b"2", 0)

    drivers.run(scenario)


def test_a_stale_version_stops_a_write(drivers):
    async def scenario(store):
        await store.commit([Create("/a"), Put("/a", b"")])
        for stale in (Put("/a", b"x", version=0), Delete("/a", version=0), Check("/a", version=0)):
            with pytest.raises(BadVersion) as caught:
                await store.commit([stale])
            assert caught.value.operation == stale
        assert await store.commit([Check("/a", version=1), Check("/a")]) == [1, -1]

    drivers.run(scenario)


def test_children_and_tree_know_their_own_and_not_their_neighbours(drivers):
    async def scenario(store):
        paths = ["/a", "/a/b", "/a/b/c", "/a/b-c", "/a/b.d", "/ab", "/a0"]
        await store.commit([Create(path, path.encode()) for path in paths])
        assert await store.children("/") == ["a", "a0", "ab"]
        assert await store.children("/a") == ["b", "b-c", "b.d"]
        assert sorted(await store.tree("/a")) == ["/a/b", "/a/b-c", "/a/b.d", "/a/b/c"]
        assert set(await store.tree("/")) == set(paths)
        assert (await store.tree("/a/b"))["/a/b/c"] == Node(b"/a/b/c", 0)

    drivers.run(scenario)


class Hints:
    """Counts hints, which another thread may bring a little later."""

    def __init__(self, store):
        self._store = store
        self.fired = []

    def __call__(self, name):
        return lambda: self.fired.append(name)

    async def settled(self):
        """What has fired once everything before has been told."""
        await self._store.sync()
        marker = asyncio.Event()
        await self._store.exists("/marker", marker.set)
        await self._store.commit([Create("/marker"), Delete("/marker")])
        await marker.wait()
        return sorted(self.fired)


def test_a_watch_on_a_node_fires_once_when_it_changes_or_goes(drivers):
    async def scenario(store):
        hints = Hints(store)
        await store.commit([Create("/a", b"1")])
        await store.get("/a", hints("data"))
        await store.exists("/a", hints("exists"))
        await store.commit([Check("/a"), Create("/a/b")])
        assert await hints.settled() == []
        await store.commit([Put("/a", b"2")])
        assert await hints.settled() == ["data", "exists"]
        await store.commit([Put("/a", b"3")])
        assert await hints.settled() == ["data", "exists"]
        await store.get("/a", hints("end"))
        with pytest.raises(BadVersion):
            await store.commit([Put("/a", b"x", version=77)])
        assert await hints.settled() == ["data", "exists"]
        await store.commit([Delete("/a/b"), Delete("/a")])
        assert await hints.settled() == ["data", "end", "exists"]

    drivers.run(scenario)


def test_a_watch_on_what_is_not_there_fires_when_it_comes(drivers):
    async def scenario(store):
        hints = Hints(store)
        assert not await store.exists("/a", hints("born"))
        with pytest.raises(NoNode):
            await store.get("/a", hints("never"))
        with pytest.raises(NoNode):
            await store.children("/a", hints("never"))
        await store.commit([Create("/a")])
        assert await hints.settled() == ["born"]

    drivers.run(scenario)


def test_a_watch_on_children_fires_once_when_one_comes_or_goes(drivers):
    async def scenario(store):
        hints = Hints(store)
        await store.commit([Create("/a")])
        await store.children("/a", hints("came"))
        await store.commit([Put("/a", b"x")])
        assert await hints.settled() == []
        await store.commit([Create("/a/b")])
        assert await hints.settled() == ["came"]
        await store.children("/a", hints("went"))
        await store.commit([Put("/a/b", b"x"), Delete("/a/b")])
        assert await hints.settled() == ["came", "went"]
        await store.children("/a", hints("end"))
        await store.commit([Delete("/a")])
        assert await hints.settled() == ["came", "end", "went"]

    drivers.run(scenario)


def test_nothing_to_write_is_written_at_once(drivers):
    async def scenario(store):
        assert await store.commit([]) == []

    drivers.run(scenario)


def test_ephemeral_nodes_end_with_their_session_and_others_stay(drivers):
    async def first(store):
        await store.commit([Create("/a", b"stays"), Create("/e", is_ephemeral=True)])
        await store.commit([Create("/a/e", is_ephemeral=True), Put("/a", b"changed")])

    async def second(store):
        assert await store.tree("/") == {"/a": Node(b"changed", 1)}

    drivers.run(first)
    drivers.run(second)


def test_a_closed_store_answers_nobody(drivers):
    async def scenario():
        store = await drivers.open()
        await store.close()
        await store.close()
        with pytest.raises(CoordinationFailed):
            await store.get("/")
        with pytest.raises(CoordinationFailed):
            await store.commit([Create("/a")])

    asyncio.run(scenario())


def test_the_parent_of_a_top_node_is_the_root():
    assert [parent_of(path) for path in ("/a", "/a/b", "/a/b/c")] == ["/", "/a", "/a/b"]


PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/d", "/d/e"])
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3), st.booleans()),
    st.builds(Put, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


async def outcomes(store, transactions):
    """What a store answers, and what it holds after each answer."""
    seen = []
    for operations in transactions:
        try:
            seen.append(await store.commit(operations))
        except NotApplied as problem:
            seen.append((type(problem), problem.operation))
        seen.append(await store.tree("/"))
    await store.close()
    return seen


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=6), max_size=8))
def test_both_stores_do_the_same_with_any_transactions(transactions):
    async def both():
        with tempfile.TemporaryDirectory() as directory:
            embedded = await outcomes(await open_embedded_store(Path(directory)), transactions)
        assert await outcomes(MemoryTree().open_session(), transactions) == embedded

    asyncio.run(both())


@pytest.mark.slow
@pytest.mark.java
@settings(max_examples=60, deadline=None)
@given(transactions=st.lists(st.lists(OPERATIONS, min_size=1, max_size=6), max_size=8))
def test_zookeeper_does_what_the_one_in_memory_does(zookeeper_of_spark, transactions):
    async def both():
        drivers = zookeeper_drivers(zookeeper_of_spark)
        real = await outcomes(await drivers.open(), transactions)
        assert await outcomes(MemoryTree().open_session(), transactions) == real

    asyncio.run(both())
