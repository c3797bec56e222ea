"""Memberships in one process, on a real ZooKeeper: what the one in memory only plays.

Covers cluster.
"""

import asyncio
import itertools

import pytest

from millstream.clock import SystemClock
from millstream.cluster import znodes
from millstream.cluster.changes import NewTopic
from millstream.cluster.controller import policy_of
from millstream.cluster.member_publisher import MemberPublisher
from millstream.cluster.membership import Membership
from millstream.cluster.metadata import ClusterMetadata
from millstream.cluster.observer import ImageChange
from millstream.cluster.state import BrokerState, PartitionState
from millstream.cluster.stores.ensemble import Ensemble
from millstream.cluster.stores.zookeeper import ZooKeeper, end_session, open_zookeeper
from millstream.config import load_config
from millstream.model import TopicPartition
from millstream.security.acl import (
    Binding,
    BindingFilter,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.support.zookeeper import ensemble_at, new_root, spark_jars, zookeeper_server

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.xdist_group("zookeeper")]

CONFIG = load_config(sets=["min.insync.replicas=2"])


class Node:
    def __init__(self, ensemble: Ensemble, broker_id: int) -> None:
        self.id = broker_id
        self.told: list[str] = []
        self.sessions: list[ZooKeeper] = []
        self._ensemble = ensemble
        tokens = itertools.count(1)
        self.membership = Membership(
            self._open,
            broker_id=broker_id,
            clock=SystemClock(),
            new_token=lambda: f"node{broker_id}-{id(self)}-{next(tokens)}",
            new_cluster_id=lambda: "cluster",
            new_secret=lambda: b"secret",
            policy=policy_of(lambda: CONFIG),
        )
        self.membership.subscribe(self)
        numbers = itertools.count(broker_id * 1_000)
        self.controller = ClusterMetadata(
            MemberPublisher(self.membership),
            CONFIG,
            broker_id=broker_id,
            random_bytes=lambda count: next(numbers).to_bytes(count, "big"),
        )

    async def _open(self) -> ZooKeeper:
        self.sessions.append(await open_zookeeper(self._ensemble))
        return self.sessions[-1]

    async def start(self) -> "Node":
        await self.membership.join(is_suspect=False)
        await self.membership.register(lambda: BrokerState(self.id))
        return self

    def state(self, number: int = 0) -> PartitionState:
        return self.membership.image.topics["t"].partitions[number]

    def image_changed(self, change: ImageChange) -> None:
        pass

    def fenced(self, reason: str) -> None:
        self.told.append("fenced")

    def active(self, broker_epoch: int) -> None:
        self.told.append(f"active {broker_epoch}")


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # another process decides when
            await asyncio.sleep(0.01)


def quick_ensemble(address: str) -> Ensemble:
    return ensemble_at(address, root=new_root(), session_timeout_ms=4_000)


async def started(ensemble: Ensemble, partitions: int = 3) -> list[Node]:
    nodes = [await Node(ensemble, number).start() for number in (1, 2, 3)]
    await until(lambda: all(len(n.membership.image.brokers) == 3 for n in nodes))
    (made,) = await nodes[2].controller.create_topics([NewTopic("t", partitions, 3)])
    assert made.error is None
    await until(lambda: all("t" in node.membership.image.topics for node in nodes))
    return nodes


async def stop(nodes: list[Node]) -> None:
    for node in nodes:
        await node.membership.leave()


@pytest.mark.parametrize("server", ["zookeeper_of_spark", "zookeeper_of_debian"])
def test_a_node_whose_session_ends_is_replaced_and_comes_back(server, request):
    async def scenario(ensemble):
        nodes = await started(ensemble)
        lost = nodes[0]
        led = [number for number in range(3) if lost.state(number).leader == 1]
        assert led
        await end_session(ensemble, lost.sessions[-1].key)
        await until(lambda: lost.told[:2] == ["active 1", "fenced"])
        await until(lambda: all(nodes[1].state(number).leader != 1 for number in led))
        await until(lambda: "active 2" in lost.told)
        await until(lambda: all(1 not in nodes[1].state(number).isr for number in range(3)))
        await stop(nodes)

    asyncio.run(scenario(quick_ensemble(request.getfixturevalue(server))))


def test_acls_reach_every_node_also_one_that_was_away(zookeeper_of_spark):
    entry = Entry("User:a", "*", Operation.READ, Permission.ALLOW)
    patterns = [
        ResourcePattern(ResourceType.TOPIC, "*"),
        ResourcePattern(ResourceType.GROUP, ".."),
        ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a/b ü\n%", PatternType.PREFIXED),
    ]

    async def scenario(ensemble):
        nodes = await started(ensemble)
        first, second, _ = nodes
        await second.controller.create_acls([Binding(pattern, entry) for pattern in patterns])
        wanted = dict.fromkeys(patterns, frozenset({entry}))
        await until(lambda: all(node.membership.image.acls.entries == wanted for node in nodes))
        await end_session(ensemble, first.sessions[-1].key)
        await until(lambda: "fenced" in first.told)
        await second.controller.delete_acls([BindingFilter(ResourceType.TOPIC)])
        del wanted[patterns[0]]
        await until(lambda: "active 2" in first.told)
        await until(lambda: all(node.membership.image.acls.entries == wanted for node in nodes))
        await stop(nodes)

    asyncio.run(scenario(quick_ensemble(zookeeper_of_spark)))


def test_a_topic_of_many_partitions_fails_over(zookeeper_of_spark):
    async def scenario():
        nodes = await started(quick_ensemble(zookeeper_of_spark), partitions=1_000)
        await nodes[0].membership.leave()
        rest = nodes[1:]
        await until(
            lambda: all(
                node.state(number).leader in (2, 3) for node in rest for number in range(1_000)
            )
        )
        (gone,) = await nodes[1].controller.delete_topics(["t"])
        assert gone.error is None
        await until(lambda: all("t" not in node.membership.image.topics for node in rest))
        assert await rest[0].sessions[-1].children(znodes.TOPICS) == []
        await stop(rest)

    asyncio.run(scenario())


def test_zookeeper_may_go_away_and_come_back(tmp_path):
    async def scenario(server):
        nodes = await started(ensemble_at(server.address, session_timeout_ms=30_000))
        server.kill()
        await until(lambda: not any(node.sessions[-1].is_connected for node in nodes))
        server.start(spark_jars())
        await until(lambda: all(node.sessions[-1].is_connected for node in nodes))
        assert [node.told for node in nodes] == [["active 1"]] * 3
        before = nodes[0].state()
        leader = nodes[before.leader - 1]
        after = await leader.membership.change_isr(
            TopicPartition("t", 0), leader.state(), before.replicas[:2], {}
        )
        await until(lambda: all(node.state().version == after.version for node in nodes))
        await stop(nodes)

    with zookeeper_server(tmp_path / "zookeeper") as server:
        asyncio.run(scenario(server))
