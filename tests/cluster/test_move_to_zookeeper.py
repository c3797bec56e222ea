"""From one node's store to a cluster's, over stores in memory."""

import asyncio
import itertools

import pytest

from millstream.cluster import znodes
from millstream.cluster.changes import ConfigChange, NewTopic
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.metadata import ClusterMetadata, load_image, start_alone
from millstream.cluster.move_to_zookeeper import move, read_move, target_problem
from millstream.cluster.state import NamedResource
from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.stores.store import Create
from millstream.config import load_config
from millstream.errors import StartError
from millstream.security.acl import (
    Binding,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.cluster.world import World, run, until


async def single_node():
    numbers = itertools.count(1)
    store = MemoryTree().open_session()

    def random_bytes(count):
        return next(numbers).to_bytes(count, "big")

    alone = await start_alone(store, broker_id=1, random_bytes=random_bytes)
    controller = ClusterMetadata(alone, load_config(), broker_id=1, random_bytes=random_bytes)
    await controller.create_topics(
        [NewTopic("small", 2, 1, configs={"retention.ms": "7"}), NewTopic("large", 500, 1)]
    )
    await controller.allocate_producer_ids()
    await controller.alter_broker_configs(None, [ConfigChange("log.retention.ms", "9")])
    await controller.alter_named_configs(
        NamedResource.GROUP, "g", [ConfigChange("consumer.session.timeout.ms", "50000")]
    )
    await controller.alter_named_configs(
        NamedResource.CLIENT_METRICS, "s", [ConfigChange("metrics", "*")]
    )
    for entity in (ClientEntity(user="u", client_id="c"), ClientEntity(ip="10.0.0.1")):
        await controller.alter_client_entity(entity, {"x": "1"})
    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        pattern = ResourcePattern(ResourceType.GROUP, "a/b", pattern_type)
        entry = Entry("User:u", "*", Operation.READ, Permission.ALLOW)
        await controller.create_acls([Binding(pattern, entry)])
    return store, controller


def test_everything_is_there_and_the_node_leads_it_as_a_member():
    async def scenario(world: World):
        store, before = await single_node()
        what = await read_move(store)
        assert "2 topics with 502 partitions" in list(what.lines())
        assert await target_problem(world.outside, what.image.cluster_id) is None
        await move(what, world.outside, min_isr=2)
        await move(what, world.outside, min_isr=2)
        (node,) = await world.start(1)
        image = node.membership.image
        assert image.cluster_id == before.image.cluster_id
        assert image.topics["small"].topic_id == before.image.topics["small"].topic_id
        assert image.topics["small"].overrides == {"retention.ms": "7"}
        # The first value is that of the node that moved, from now on for all nodes.
        for_all = {"min.insync.replicas": "2", "log.retention.ms": "9"}
        assert image.broker_overrides == {None: for_all}
        assert image.named_overrides == before.image.named_overrides
        assert image.client_metrics == {"s": {"metrics": "*"}}
        assert image.client_entities.options == before.image.client_entities.options
        assert image.acls.entries == before.image.acls.entries
        assert len(image.acls.entries) == 2
        await until(lambda: node.state(499, "large").leader == 1)
        epoch = before.image.topics["large"].partitions[499].leader_epoch
        assert node.state(499, "large").leader_epoch > epoch

    run(scenario)


def test_a_default_that_was_set_at_run_time_is_moved_as_it_is():
    async def scenario():
        store, controller = await single_node()
        await controller.alter_broker_configs(None, [ConfigChange("min.insync.replicas", "3")])
        target = MemoryTree().open_session()
        await move(await read_move(store), target, min_isr=2)
        moved = await load_image(target)
        assert moved.broker_overrides[None]["min.insync.replicas"] == "3"

    asyncio.run(scenario())


# Early, and when everything that a cluster has at its top is there.
@pytest.mark.parametrize("commits", [5, len(znodes.BASE_PATHS) + 3])
def test_a_move_that_was_cut_short_begins_again(commits):
    async def scenario():
        store, _ = await single_node()
        what = await read_move(store)
        target = MemoryTree().open_session()
        commit = target.commit
        left = [commits]

        async def cut_short(operations):
            left[0] -= 1
            if left[0] == 0:
                raise ConnectionError
            return await commit(operations)

        target.commit = cut_short
        with pytest.raises(ConnectionError):
            await move(what, target, min_isr=1)
        target.commit = commit
        assert await target_problem(target, what.image.cluster_id) is None
        await move(what, target, min_isr=1)
        moved = await load_image(target)
        assert moved.topics.keys() == what.image.topics.keys()

    asyncio.run(scenario())


def test_what_is_somebody_elses_is_left_alone():
    async def scenario():
        store, _ = await single_node()
        what = await read_move(store)
        target = MemoryTree().open_session()
        await target.commit([Create("/hbase")])
        assert "hbase" in await target_problem(target, what.image.cluster_id)
        other, _ = await single_node()
        # Also where it keeps more than a cluster needs.
        await other.commit([Create("/consumers")])
        assert "another cluster" in await target_problem(other, "not this one")
        with pytest.raises(StartError):
            await read_move(MemoryTree().open_session())

    asyncio.run(scenario())
