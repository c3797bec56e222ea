"""Groups of a cluster are copied to where tools of ZooKeeper's time look."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from millstream.broker.coordination import consumers_mirror
from millstream.cluster.mirror import MirroredMember, consumers_tree
from millstream.coordinators.codecs.embedded import encode_assignment, encode_subscription
from millstream.errors import KafkaCode
from millstream.wire.apis.join_group import JoinGroupProtocol, JoinGroupRequest
from millstream.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest
from tests.replication.nodes import Cluster, ask, cluster_of, until

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


def consumer_of(cluster: Cluster, group: str = "g") -> Consumer:
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
    return Consumer({"bootstrap.servers": addresses, "group.id": group, "log_level": 0})


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


async def assign_as_a_leader_that_invents_topics(cluster: Cluster, group: str) -> str:
    """The member's id."""
    first = next(iter(cluster.nodes.values()))
    coordinator = cluster.nodes[first.coordinators.shards.leader_of(group)]
    subscription = JoinGroupProtocol(name="own", metadata=encode_subscription(("t",)))
    joined = await ask(
        coordinator,
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[subscription],
        ),
        3,
    )
    assert joined.error_code == KafkaCode.NONE
    invented = encode_assignment({"": [0], "a/b": [1], "t": [0]}, version=0)
    synced = await ask(
        coordinator,
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupAssignment(member_id=joined.member_id, assignment=invented)],
        ),
        1,
    )
    assert synced.error_code == KafkaCode.NONE
    return joined.member_id


def test_topics_that_a_leader_invented_are_copied_like_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=WANTED) as cluster:
            await cluster.create()
            consumer = consumer_of(cluster)
            # Creates the topic of the groups.
            await asyncio.to_thread(commit, consumer, 5)
            member = await assign_as_a_leader_that_invents_topics(cluster, "invented")
            await Group(cluster, "invented").wait(
                **{"owners_%_0": member, "owners_a%2Fb_1": member, "owners_t_0": member}
            )
            await asyncio.to_thread(commit, consumer, 6)
            await Group(cluster, "g").wait(offsets_t_0="6")
            await asyncio.to_thread(consumer.close)

    asyncio.run(scenario())


def test_a_group_that_cannot_be_copied_is_left_out_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refusing_five(
        group: str, members: Sequence[MirroredMember], offsets: Mapping[str, Mapping[int, int]]
    ) -> dict[str, bytes]:
        assert offsets.get("t") not in ({0: 5}, {0: 6}), "unforeseen"
        return consumers_tree(group, members, offsets)

    async def scenario() -> None:
        # With one node, all groups have the same mirror.
        settings = {
            **WANTED,
            "min.insync.replicas": "1",
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
        }
        async with cluster_of(tmp_path, nodes=1, settings=settings) as cluster:
            await cluster.create(replicas=1)
            bad, good = consumer_of(cluster, "bad"), consumer_of(cluster, "good")
            # In between, the mirror writes.
            for bad_offset, good_offset in ((5, 10), (6, 11)):
                await asyncio.to_thread(commit, bad, bad_offset)
                await asyncio.to_thread(commit, good, good_offset)
                await Group(cluster, "good").wait(offsets_t_0=str(good_offset))
            assert not await cluster.tree.open_session().exists("/consumers/bad")
            await asyncio.to_thread(commit, bad, 7)
            await Group(cluster, "bad").wait(offsets_t_0="7")
            await asyncio.to_thread(bad.close)
            await asyncio.to_thread(good.close)

    monkeypatch.setattr(consumers_mirror, "consumers_tree", refusing_five)
    with caplog.at_level(logging.ERROR, consumers_mirror.__name__):
        asyncio.run(scenario())
    [logged] = [each for each in caplog.records if each.name == consumers_mirror.__name__]
    assert "cannot copy group 'bad' to ZooKeeper" in logged.message
    assert "unforeseen" in logged.message
