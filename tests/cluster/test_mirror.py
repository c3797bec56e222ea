"""Groups as they look under /consumers."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from millstream.cluster.mirror import (
    MirroredMember,
    changes,
    consumers_tree,
    group_path,
    read_group,
    write_group,
)
from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.stores.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    Operation,
    Put,
    check_path,
)
from millstream.cluster.stores.transaction_size import TRANSACTION_BYTES_MAX, size_bytes

MEMBER = MirroredMember("m-1", ("t", "u"), {"t": [0, 2]})


def test_members_owners_and_offsets_are_where_zookeepers_consumers_left_them():
    tree = consumers_tree("g", [MEMBER], {"t": {0: 5, 1: 7}})
    assert json.loads(tree.pop("/consumers/g/ids/m-1"))["subscription"] == {"t": 1, "u": 1}
    assert {path: data for path, data in tree.items() if data} == {
        "/consumers/g/owners/t/0": b"m-1",
        "/consumers/g/owners/t/2": b"m-1",
        "/consumers/g/offsets/t/0": b"5",
        "/consumers/g/offsets/t/1": b"7",
    }


def test_a_group_with_nothing_has_no_node():
    assert consumers_tree("g", [], {}) == {}


@pytest.mark.parametrize("group", ["a/b", ".", "..", "", "naïve group"])
def test_any_name_of_a_group_is_one_node(group):
    path = group_path(group)
    assert path.count("/") == 2
    assert not path.endswith(("/", "/.", "/.."))


@pytest.mark.parametrize("topic", ["", "a/b", "/", "..", "a//b", "nul\0"])
def test_a_topic_that_a_client_invented_is_one_node(topic: str) -> None:
    tree = consumers_tree("g", [MirroredMember("m", (topic,), {topic: [0]})], {topic: {0: 5}})
    for path in tree:
        check_path(path)
    for folder in ("owners", "offsets"):
        [found] = [path for path in tree if path.startswith(f"/consumers/g/{folder}/")][:1]
        assert found.count("/") == 4
        assert f"{found}/0" in tree


def test_topics_keep_their_names() -> None:
    tree = consumers_tree("g", [], {"Orders.v2_eu-west": {0: 5}})
    assert "/consumers/g/offsets/Orders.v2_eu-west/0" in tree


def test_a_large_group_is_written_in_transactions_that_zookeeper_takes() -> None:
    sizes: list[int] = []

    class Recording:
        async def exists(self, path: str) -> bool:
            return True

        async def commit(self, operations: Sequence[Operation]) -> list[int]:
            assert operations[0] == Check("/state", 0)
            sizes.append(sum(map(size_bytes, operations)))
            written.extend(operations[1:])
            return []

    written: list[Operation] = []
    topics = tuple(f"{number:04}-{'long' * 50}" for number in range(1000))
    members = [MirroredMember(f"m-{number}", topics, {}) for number in range(50)]
    operations = changes({}, consumers_tree("g", members, {}))
    asyncio.run(write_group(Recording(), operations, [Check("/state", 0)]))
    assert written == operations
    assert max(sizes) <= TRANSACTION_BYTES_MAX
    assert len(sizes) < len(members)


def test_of_a_subscription_that_no_transaction_can_hold_only_the_member_is_left() -> None:
    topics = tuple(f"{number:04}-{'long' * 50}" for number in range(4000))
    tree = consumers_tree("g", [MirroredMember("m", topics, {})], {})
    assert json.loads(tree["/consumers/g/ids/m"])["subscription"] == {}


def test_only_differences_are_written_in_an_order_that_works():
    known = {
        "/consumers/g": b"",
        "/consumers/g/a": b"1",
        "/consumers/g/a/b": b"",
        "/consumers/g/c": b"2",
    }
    wanted = {
        "/consumers/g": b"",
        "/consumers/g/c": b"3",
        "/consumers/g/d": b"",
        "/consumers/g/d/e": b"4",
    }
    assert changes(known, wanted) == [
        Put("/consumers/g/c", b"3"),
        Create("/consumers/g/d"),
        Create("/consumers/g/d/e", b"4"),
        Delete("/consumers/g/a/b"),
        Delete("/consumers/g/a"),
    ]


def test_what_is_left_over_goes_and_an_outdated_writer_changes_nothing():
    async def scenario():
        store = MemoryTree().open_session()
        await store.commit([Create("/state")])
        first = consumers_tree("g", [MEMBER], {"t": dict.fromkeys(range(500), 1)})
        await write_group(store, changes({}, first), [Check("/state", 0)])
        known = await read_group(store, "g")
        assert known == first
        second = consumers_tree("g", [], {"t": {0: 2}})
        await write_group(store, changes(known, second), [Check("/state", 0)])
        assert await read_group(store, "g") == second
        await store.commit([Put("/state", b"")])
        with pytest.raises(BadVersion):
            await write_group(store, changes(second, {}), [Check("/state", 0)])
        assert await read_group(store, "g") == second
        await write_group(store, changes(second, {}), [Check("/state", 1)])
        assert await store.children("/consumers") == []

    asyncio.run(scenario())
