"""Two versions in one cluster: which formats they use, and who may take part."""

import asyncio
from dataclasses import replace

import pytest

from millstream.cluster import level, znodes
from millstream.cluster.joining import cluster_level
from millstream.cluster.state import BrokerState
from millstream.cluster.stores.store import Node as Znode
from millstream.errors import StartError
from tests.cluster.world import Node, World, run


def test_the_cluster_moves_on_when_every_node_with_replicas_knows_the_next_level() -> None:
    assert level.raised(0, known={1: 1, 2: 1}, needed={1, 2}) == 1
    assert level.raised(0, known={1: 1, 2: 0}, needed={1, 2}) is None
    # Node 3 is away and may come back in its older version.
    assert level.raised(0, known={1: 1, 2: 1}, needed={1, 2, 3}) is None
    assert level.raised(1, known={1: 1}, needed={1}) is None
    # A newer version is among them: this controller knows only its own levels.
    assert level.raised(0, known={1: 1, 2: 5}, needed={1, 2}) == level.HIGHEST
    assert level.raised(0, known={}, needed=()) is None


def test_a_version_that_does_not_know_the_level_says_what_to_do() -> None:
    assert level.start_problem(level.HIGHEST) is None
    assert "start a newer one" in (level.start_problem(level.HIGHEST + 1) or "")


class OlderNode(Node):
    """As versions before levels register."""

    def _describe(self) -> BrokerState:
        return replace(super()._describe(), level=0)


async def until_level(world: World, wanted: int) -> None:
    for _ in range(3_000):
        if await cluster_level(world.outside) == wanted:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"the cluster is at level {await cluster_level(world.outside)}")


def test_a_rolling_upgrade_reaches_the_new_level_with_its_last_node() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2):
            world.nodes[broker_id] = OlderNode(world, broker_id)
            await world.nodes[broker_id].start()
        await world.make_topic((1, 2))
        for broker_id in (1, 2):
            assert await cluster_level(world.outside) == 0
            await world.nodes[broker_id].membership.leave()
            # The node that is left holds the cluster back, and so does one that is away.
            assert await cluster_level(world.outside) == 0
            await world.start(broker_id)
        await until_level(world, 1)

    run(scenario)


def test_an_older_version_does_not_start_in_a_cluster_that_has_moved_on() -> None:
    async def scenario(world: World) -> None:
        await world.start(1)
        await until_level(world, level.HIGHEST)
        data = znodes.encode_level(level.HIGHEST + 1)
        assert znodes.decode_level(Znode(data, 0)) == level.HIGHEST + 1
        await world.set(znodes.LEVEL, data)
        with pytest.raises(StartError, match=f"the cluster is at level {level.HIGHEST + 1}"):
            await Node(world, 2).start()

    run(scenario)
