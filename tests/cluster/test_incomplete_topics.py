"""What is left of topics that were created or deleted in parts, over a store in memory."""

import asyncio
import itertools
import uuid

import pytest

from millstream.cluster import incomplete_topics, member_publisher, znodes
from millstream.cluster.incomplete_topics import remove_half_made, remove_if_half_made
from millstream.cluster.member_publisher import MemberPublisher
from millstream.cluster.state import ClusterImage, TopicState
from millstream.cluster.stores.store import BadVersion, Create
from tests.cluster.world import World, run, until


async def leave_half_made(world: World, name: str) -> None:
    """As its creator leaves it that dies between two parts."""
    path = znodes.topic_path(name)
    await world.create(path)
    await world.create(znodes.topic_config_path(name), b"{}")
    await world.create(f"{path}/partitions")
    for number in range(12):
        await world.create(znodes.partition_path(name, number))
        await world.create(znodes.partition_state_path(name, number), b"{}")


async def left_of(world: World, name: str) -> bool:
    places = (znodes.topic_path(name), znodes.topic_config_path(name))
    return any([await world.outside.exists(place) for place in places])


async def until_gone(world: World, name: str) -> None:
    for _ in range(2_500):
        if not await left_of(world, name):
            return
        await asyncio.sleep(0)
    raise AssertionError("it is still there")


@pytest.fixture(autouse=True)
def small_writes(monkeypatch):
    monkeypatch.setattr(member_publisher, "OPERATIONS_MAX", 20)
    monkeypatch.setattr(incomplete_topics, "_DELETES_PER_WRITE", 10)


def test_a_new_controller_removes_what_was_left_half_made_and_nothing_else():
    async def scenario(world: World):
        first, second = await world.start(1, 2)
        await world.make_topic((2,))
        await leave_half_made(world, "left")
        first.die()
        await until(lambda: second.membership.is_controller)
        await until_gone(world, "left")
        assert await left_of(world, "t")

    run(scenario)


def test_what_a_node_left_half_made_is_removed_when_it_starts_again():
    async def scenario(world: World):
        _, second = await world.start(1, 2)
        await leave_half_made(world, "left")
        second.die()
        await world.start(2)
        await until_gone(world, "left")

    run(scenario)


def test_a_creator_that_still_writes_completes_nothing_of_what_is_removed():
    async def scenario(world: World):
        first, _ = await world.start(1, 2)
        publisher = MemberPublisher(first.membership)
        partitions = [publisher.new_partition((1,), min_isr=1) for _ in range(50)]
        topic = TopicState("t", uuid.UUID(int=7), partitions)
        store = first.sessions[-1]
        commit, numbers = store.commit, itertools.count(1)
        has_paused, goes_on = asyncio.Event(), asyncio.Event()

        async def pausing(operations):
            if next(numbers) == 3:
                has_paused.set()
                await goes_on.wait()
            return await commit(operations)

        async def commit_and_let_it_go_on(operations):
            await world.outside.commit(operations)
            goes_on.set()
            for _ in range(100):
                await asyncio.sleep(0)

        store.commit = pausing
        creation = asyncio.create_task(publisher.create([topic]))
        await has_paused.wait()
        # As the next controller does, before it knows the topic.
        await remove_half_made(world.outside, ClusterImage(), commit_and_let_it_go_on)
        with pytest.raises(BadVersion):
            await creation
        assert not await left_of(world, "t")

    run(scenario)


def test_of_two_that_remove_a_topic_the_later_one_does():
    async def scenario(world: World):
        await world.start(1)
        await leave_half_made(world, "left")
        commits = []

        async def overtaken(operations):
            commits.append(operations)
            if len(commits) == 2:
                await remove_if_half_made(world.outside, "left", world.outside.commit)
                # Its name is free, and used at once.
                await world.outside.commit([Create(znodes.topic_path("left"), b"{}")])
            await world.outside.commit(operations)

        with pytest.raises(BadVersion):
            await remove_if_half_made(world.outside, "left", overtaken)
        assert await left_of(world, "left")

    run(scenario)
