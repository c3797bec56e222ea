"""Groups of a cluster are copied to where tools of ZooKeeper's time look."""

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.replication.nodes import Cluster, cluster_of, until

pytestmark = pytest.mark.slow
WANTED = {"zookeeper.consumers.mirror": "true", "group.initial.rebalance.delay.ms": "0"}


class Group:
    """What is under /consumers, as it was last read."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._store = cluster.tree.open_session()
        self._path = f"/consumers/{name}"

    async def wait(self, **wanted: str | None) -> None:
        """Until the nodes whose names are given have this data, or are not there."""
        try:
            async with asyncio.timeout(20):
                while not await self._is_so(wanted):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            found = await self._store.tree(self._path)
            raise AssertionError(f"not {wanted} but {found}") from None

    async def _is_so(self, wanted: dict[str, str | None]) -> bool:
        found = await self._store.tree(self._path)
        paths = {name: f"{self._path}/{name.replace('_', '/')}" for name in wanted}
        return all(
            (paths[name] in found) == (data is not None)
            and (data is None or found[paths[name]].data.decode() == data)
            for name, data in wanted.items()
        )

    async def members(self) -> list[str]:
        return await self._store.children(f"{self._path}/ids")


def consumer_of(cluster: Cluster) -> Consumer:
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
    return Consumer({"bootstrap.servers": addresses, "group.id": "g", "log_level": 0})


def commit(consumer: Consumer, offset: int) -> None:
    """The coordinator may have moved a moment ago."""
    for _ in range(400):
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
            return
        except KafkaException as refused:
            last = refused
        time.sleep(0.05)
    raise last


def poll_until_assigned(consumer: Consumer) -> Message | None:
    while not consumer.assignment():
        consumer.poll(0.05)
    return None


def test_members_and_offsets_follow_the_group_and_survive_its_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=WANTED) as cluster:
            await cluster.create()
            group = Group(cluster, "g")
            consumer = consumer_of(cluster)
            consumer.subscribe(["t"])
            await asyncio.to_thread(poll_until_assigned, consumer)
            await asyncio.to_thread(commit, consumer, 5)
            await group.wait(offsets_t_0="5")
            [member] = await group.members()
            await group.wait(owners_t_0=member)
            await asyncio.to_thread(consumer.close)
            await group.wait(owners_t_0=None, offsets_t_0="5")
            assert await group.members() == []

            looked_after = cluster.nodes[1].coordinators.shards.leader_of("g")
            await cluster.kill(looked_after)
            left = next(iter(cluster.nodes.values()))
            await until(
                lambda: left.coordinators.shards.leader_of("g") in cluster.nodes,
                "another node looks after the group",
            )
            consumer = consumer_of(cluster)
            await asyncio.to_thread(commit, consumer, 9)
            await group.wait(offsets_t_0="9")
            await asyncio.to_thread(consumer.close)

    asyncio.run(scenario())


def test_without_the_option_nothing_is_copied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            consumer = consumer_of(cluster)
            await asyncio.to_thread(commit, consumer, 5)
            await asyncio.to_thread(consumer.close)
            assert not await cluster.tree.open_session().exists("/consumers")

    asyncio.run(scenario())
