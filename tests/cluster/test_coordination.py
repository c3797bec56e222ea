"""One suite that every coordination store must pass."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cluster.coordination import (
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
from millstream.cluster.embedded import open_embedded_store
from millstream.cluster.memory import MemoryTree


class Drivers:
    """Opens sessions on one tree; each is opened after the one before was closed."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._directory = directory
        self._tree = MemoryTree()

    async def open(self) -> CoordinationStore:
        if self._kind == "memory":
            return self._tree.open_session()
        return await open_embedded_store(self._directory)

    def run(self, scenario: Callable[[CoordinationStore], Awaitable[None]]) -> None:
        async def with_store() -> None:
            store = await self.open()
            try:
                await scenario(store)
            finally:
                await store.close()

        asyncio.run(with_store())


@pytest.fixture(params=["memory", "embedded"])
def drivers(request, tmp_path) -> Drivers:
    return Drivers(request.param, tmp_path)


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
        assert await store.commit([Check("/a", version=1), Check("/a")]) == [1, 1]

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


def test_a_watch_fires_once_for_a_change_of_the_node_or_its_children(drivers):
    async def scenario(store):
        fired = []
        await store.commit([Create("/a")])
        store.watch("/a", lambda: fired.append("a"))
        store.watch("/a/b", lambda: fired.append("b"))
        await store.commit([Check("/a")])
        assert fired == []
        await store.commit([Create("/a/b")])
        assert sorted(fired) == ["a", "b"]
        await store.commit([Put("/a", b"x"), Delete("/a/b")])
        assert sorted(fired) == ["a", "b"]
        store.watch("/a", lambda: fired.append("again"))
        with pytest.raises(BadVersion):
            await store.commit([Put("/a", b"x", version=77)])
        assert "again" not in fired
        await store.commit([Put("/a", b"x")])
        assert fired.count("again") == 1

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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=6), max_size=8))
def test_both_stores_do_the_same_with_any_transactions(transactions):
    async def outcomes(store):
        seen = []
        for operations in transactions:
            try:
                seen.append(await store.commit(operations))
            except NotApplied as problem:
                seen.append((type(problem), problem.operation))
            seen.append(await store.tree("/"))
        await store.close()
        return seen

    async def both():
        with tempfile.TemporaryDirectory() as directory:
            embedded = await outcomes(await open_embedded_store(Path(directory)))
        assert await outcomes(MemoryTree().open_session()) == embedded

    asyncio.run(both())
