"""Nodes that die, return and change ISRs at random moments; then all is healed and must work.

What each replica has of the log is played along: a record is committed when everybody in
the ISR has it, and whoever leads must have everything that is committed. Some nodes lose
records while they are away, and say so; only where everybody who had all did so may
committed records be lost, and then by the election that tells of it.

Covers cluster.
"""

import asyncio
import random
from collections.abc import Sequence

import pytest

from millstream.cluster import election
from millstream.cluster.membership import Outdated
from millstream.cluster.state import PartitionState
from millstream.cluster.stores.memory import MemoryStore
from millstream.cluster.stores.store import CoordinationFailed, Operation
from millstream.errors import StartError
from millstream.model import TopicPartition
from tests.cluster.world import Node, World, until

BROKERS = (1, 2, 3)
PARTITIONS = 4
STEPS = 60


class Chaos:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.delays = random.Random(seed)
        open_session = self.world.tree.open_session
        self.world.tree.open_session = lambda: self.slowed(open_session())
        self.alive: dict[int, Node] = {}
        # Records that each replica has, and those that are committed, by partition.
        self.ends = {number: dict.fromkeys(BROKERS, 0) for number in range(PARTITIONS)}
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.world.log_end = lambda broker_id, where: (0, self.ends[where.partition][broker_id])
        # Partitions whose loss was told.
        self.lost: set[int] = set()

    def slowed(self, store: MemoryStore) -> MemoryStore:
        """Others go on while a write is on its way, and while its answer is."""
        commit = store.commit

        async def commit_slowly(operations: Sequence[Operation]) -> list[int]:
            await self.delay()
            try:
                return await commit(operations)
            finally:
                await self.delay()

        store.commit = commit_slowly  # type: ignore[method-assign]
        return store

    async def delay(self) -> None:
        for _ in range(self.delays.randrange(4)):
            await asyncio.sleep(0)

    async def run(self) -> None:
        for broker_id in BROKERS:
            await self.start(broker_id)
        rotations = [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)]
        await self.world.make_topic(*rotations)
        await until(lambda: all("t" in n.membership.image.topics for n in self.alive.values()))
        for _ in range(STEPS):
            await self.random.choice([self.kill, self.revive, self.append, self.append])()
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
        await self.heal()

    async def start(self, broker_id: int) -> None:
        node = Node(self.world, broker_id)
        loses_data = self.random.random() < 0.2
        if loses_data:
            for ends in self.ends.values():
                ends[broker_id] = self.random.randint(0, ends[broker_id])
        await node.start(is_suspect=loses_data)
        self.alive[broker_id] = self.world.nodes[broker_id] = node

    async def kill(self) -> None:
        if self.alive:
            broker_id = self.random.choice(sorted(self.alive))
            self.alive.pop(broker_id).die()

    async def revive(self) -> None:
        dead = [broker_id for broker_id in BROKERS if broker_id not in self.alive]
        if dead:
            await self.start(self.random.choice(dead))

    async def append(self) -> None:
        """A leader appends; its followers fetch, or leave the ISR, or come back."""
        number = self.random.randrange(PARTITIONS)
        for node in self.alive.values():
            state = node.state(number)
            if state.leader == node.id and not node.membership.is_fenced:
                await self.lead(node, number, state)
                return

    async def lead(self, leader: Node, number: int, state: PartitionState) -> None:
        ends = self.ends[number]
        self.check_leader(number, leader.id)
        ends[leader.id] += 1
        following = [
            node
            for node in self.alive.values()
            if node.id != leader.id and self.random.random() < 0.7
        ]
        for node in following:
            # Whatever it had of its own is cut off, as its fetch tells it.
            ends[node.id] = ends[leader.id]
        wanted = (leader.id, *(node.id for node in following))
        epochs = {node.id: node.membership.broker_epoch for node in following}
        if set(wanted) != set(state.isr):
            where = TopicPartition("t", number)
            try:
                state = await leader.membership.change_isr(where, state, wanted, epochs)
            except (Outdated, CoordinationFailed):
                return
        if len(state.isr) >= state.min_isr and all(ends[r] == ends[leader.id] for r in state.isr):
            self.committed[number] = ends[leader.id]

    def noting_loss(self, recovered):
        def recovered_and_noted(state, ends):
            self.lost |= {end.where.partition for end in ends.values()}
            return recovered(state, ends)

        return recovered_and_noted

    def check_leader(self, number: int, leader: int) -> None:
        if number in self.lost:
            self.lost.discard(number)
            self.committed[number] = min(self.committed[number], self.ends[number][leader])
        assert self.ends[number][leader] >= self.committed[number], "committed records are lost"

    async def heal(self) -> None:
        while len(self.alive) < len(BROKERS):
            await self.revive()
        nodes = list(self.alive.values())
        for number in range(PARTITIONS):
            await until(lambda n=number: all(node.state(n).leader != -1 for node in nodes))
            await until(lambda n=number: len({node.state(n).version for node in nodes}) == 1)
            state = nodes[0].state(number)
            assert state.leader in state.isr
            self.check_leader(number, state.leader)
        assert sum(node.membership.is_controller for node in nodes) == 1


@pytest.mark.parametrize("seed", range(40))
def test_whoever_leads_has_all_that_is_committed_and_in_the_end_all_are_led(seed, monkeypatch):
    async def scenario():
        chaos = Chaos(seed)
        monkeypatch.setattr(election, "recovered", chaos.noting_loss(election.recovered))
        try:
            async with asyncio.timeout(60):
                await chaos.run()
        except StartError as error:
            raise AssertionError(f"a node could not start: {error}") from error
        finally:
            for node in chaos.world.nodes.values():
                await node.membership.leave()

    asyncio.run(scenario())
