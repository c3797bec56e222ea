"""Several nodes' memberships on one coordination tree in memory: no disk, no network."""

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable

from millstream.cluster import znodes
from millstream.cluster.controller import Policy
from millstream.cluster.leader_balance import LeaderBalance
from millstream.cluster.membership import Membership
from millstream.cluster.observer import ImageChange
from millstream.cluster.state import BrokerState, LogEnd, PartitionState, TopicState
from millstream.cluster.stores.memory import MemoryStore, MemoryTree
from millstream.cluster.stores.store import Create, Put
from millstream.model import TopicPartition


class HandClock:
    """Time that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class Node:
    """One node: its membership, and what it was told."""

    def __init__(self, world: "World", broker_id: int) -> None:
        self._world = world
        self.id = broker_id
        self.told: list[str] = []
        self.changes: list[ImageChange] = []
        self.sessions: list[MemoryStore] = []
        self.membership = Membership(
            self._open_session,
            broker_id=broker_id,
            clock=world.clock,
            new_token=world.token,
            new_cluster_id=lambda: "cluster",
            new_secret=lambda: b"secret",
            policy=Policy(
                lambda topic: world.min_isr,
                lambda: world.is_balanced,
                may_elect_uncleanly=lambda topic: topic.name in world.unclean_topics,
                has_elr=lambda: world.has_elr,
                leader_balance=lambda: world.leader_balance,
            ),
        )
        self.membership.subscribe(self)

    async def _open_session(self) -> MemoryStore:
        store = self._world.tree.open_session()
        self.sessions.append(store)
        return store

    async def start(self, *, is_suspect: bool = False) -> None:
        await self.membership.join(is_suspect=is_suspect)
        await self.membership.register(self._describe)

    def _describe(self) -> BrokerState:
        ends = [
            LogEnd(where, epoch, *self._world.log_end(self.id, where))
            for where, epoch in self.membership.lost_partitions()
        ]
        return BrokerState(self.id, log_ends=tuple(ends))

    def die(self) -> None:
        """The session expires, and the process is not there to notice."""
        self.membership._has_left = True
        supervising = self.membership._controller._task
        assert supervising is not None
        supervising.cancel()
        self.sessions[-1].expire()

    def state(self, partition: int = 0, topic: str = "t") -> PartitionState:
        return self.membership.image.topics[topic].partitions[partition]

    # What a node is told.

    def image_changed(self, change: ImageChange) -> None:
        self.changes.append(change)

    def fenced(self, reason: str) -> None:
        self.told.append(f"fenced: {reason}")

    def active(self, broker_epoch: int) -> None:
        self.told.append(f"active {broker_epoch}")


class World:
    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.clock = HandClock()
        self.min_isr = 2
        self.is_balanced = True
        self.has_elr = True
        self.unclean_topics: set[str] = set()
        self.leader_balance = LeaderBalance(False, check_seconds=300.0, percentage_max=10)
        # Last epoch and next offset of each node's logs.
        self.log_ends: dict[int, tuple[int, int]] = {1: (0, 0), 2: (0, 0), 3: (0, 0)}
        self._tokens = itertools.count(1)
        self._topic_ids = itertools.count(1)
        self.outside = self.tree.open_session()
        self.nodes: dict[int, Node] = {}

    def log_end(self, broker_id: int, where: TopicPartition) -> tuple[int, int]:
        return self.log_ends[broker_id]

    def token(self) -> str:
        return f"token{next(self._tokens)}"

    async def start(self, *broker_ids: int, **settings) -> list[Node]:
        nodes = []
        for broker_id in broker_ids:
            node = Node(self, broker_id)
            await node.start(**settings)
            self.nodes[broker_id] = node
            nodes.append(node)
        return nodes

    async def make_topic(self, *assignments: tuple[int, ...], name: str = "t") -> None:
        partitions = [
            PartitionState(
                leader=replicas[0],
                leader_epoch=0,
                isr=replicas,
                replicas=replicas,
                version=0,
                min_isr=self.min_isr,
                writer_token="made",
            )
            for replicas in assignments
        ]
        topic_id = uuid.UUID(int=next(self._topic_ids))
        topic = TopicState(name, topic_id, partitions)
        await self.outside.commit(list(znodes.create_topic(topic, controller_epoch=1)))

    async def create(self, path: str, data: bytes = b"") -> None:
        await self.outside.commit([Create(path, data)])

    async def set(self, path: str, data: bytes) -> None:
        await self.outside.commit([Put(path, data)])


async def until(condition: Callable[[], bool]) -> None:
    """Let the tasks run until it holds. Hardly anything here needs real time."""
    for number in range(3_000):
        if condition():
            return
        await asyncio.sleep(0 if number < 2_500 else 0.01)
    raise AssertionError("it never came to be so")


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def with_world() -> None:
        world = World()
        try:
            await scenario(world)
        finally:
            for node in world.nodes.values():
                await node.membership.leave()

    asyncio.run(with_world())
