"""The coordination store in the simulation: the states of all partitions, and which nodes are
registered.

Its transactions have the checks of the real ones; the real `cluster.election` decides.
"""

from dataclasses import dataclass, replace
from uuid import UUID

from millstream.cluster import election
from millstream.cluster.election import Nodes
from millstream.cluster.state import NO_LEADER, ClusterImage, PartitionState, TopicState
from millstream.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition

NODES = (1, 2, 3)
DATA_TOPIC = "data"
DATA_PARTITIONS = 2
# What groups read; nothing is written there.
READ_TOPIC = "read"
READ_PARTITIONS = 4
TOPICS = {
    OFFSETS_TOPIC: 1,
    TRANSACTIONS_TOPIC: 1,
    DATA_TOPIC: DATA_PARTITIONS,
}
TOPIC_IDS = {name: UUID(int=n) for n, name in enumerate([*TOPICS, READ_TOPIC], start=1)}


class Outdated(Exception):
    """A check failed: nothing was written."""


@dataclass(frozen=True)
class Seen:
    """What one read of the store showed; reads are numbered in their order."""

    number: int
    states: dict[TopicPartition, PartitionState]
    alive: dict[int, int]


def places() -> list[TopicPartition]:
    return [TopicPartition(name, n) for name, count in TOPICS.items() for n in range(count)]


class Store:
    def __init__(self, min_isr: int) -> None:
        # Replicas in another order for each, so that leaders are spread.
        self.states = {
            where: PartitionState(NO_LEADER, 0, NODES, _rotated(n), version=0, min_isr=min_isr)
            for n, where in enumerate(places())
        }
        # Raised by every incarnation and by fencing; never goes back.
        self.epochs = dict.fromkeys(NODES, 0)
        # Ephemeral: the epoch in which a node registered.
        self.registered: dict[int, int] = {}
        # New incarnations that wait to be handled, and whether they may have lost data.
        self.newcomers: dict[int, bool] = {}
        self.next_producer_id = 0

    def alive(self) -> dict[int, int]:
        return {
            node: epoch for node, epoch in self.registered.items() if epoch == self.epochs[node]
        }

    def begin_incarnation(self, node: int, *, is_suspect: bool) -> int:
        self.epochs[node] += 1
        self.newcomers[node] = is_suspect
        return self.epochs[node]

    def register(self, node: int, epoch: int) -> None:
        if self.epochs[node] != epoch or node in self.registered:
            raise Outdated
        self.registered[node] = epoch

    def write(
        self, where: TopicPartition, state: PartitionState, *, epochs: dict[int, int]
    ) -> PartitionState:
        """Put `state` if its version holds and every node named is of the epoch given."""
        if state.version != self.states[where].version:
            raise Outdated
        if any(self.epochs[node] != epoch for node, epoch in epochs.items()):
            raise Outdated
        self.states[where] = replace(state, version=state.version + 1)
        return self.states[where]

    def change_isr(
        self,
        where: TopicPartition,
        leader: int,
        broker_epoch: int,
        isr: tuple[int, ...],
        version: int,
        joining: dict[int, int],
    ) -> PartitionState:
        """What a leader writes about its own partition."""
        if self.registered.get(leader) != broker_epoch:
            raise Outdated
        wanted = replace(election.with_isr(self.states[where], isr), version=version)
        return self.write(where, wanted, epochs={leader: broker_epoch, **joining})

    def take_producer_ids(self) -> range:
        self.next_producer_id += 10
        return range(self.next_producer_id - 10, self.next_producer_id)

    def image(self) -> ClusterImage:
        image = ClusterImage()
        for name, count in TOPICS.items():
            states = [self.states[TopicPartition(name, n)] for n in range(count)]
            image.add_topic(TopicState(name, TOPIC_IDS[name], states))
        nowhere = [
            PartitionState(NO_LEADER, 0, NODES, NODES, version=0) for _ in range(READ_PARTITIONS)
        ]
        image.add_topic(TopicState(READ_TOPIC, TOPIC_IDS[READ_TOPIC], nowhere))
        return image


@dataclass(frozen=True)
class Decision:
    """What the controller writes about a partition, and the epochs that this counts on."""

    where: TopicPartition
    state: PartitionState
    epochs: dict[int, int]


def decide(store: Store) -> list[Decision]:
    alive = store.alive()
    nodes = Nodes(
        live=alive.keys(),
        suspects={node for node, is_suspect in store.newcomers.items() if is_suspect},
    )
    newcomers = {node: store.epochs[node] for node in store.newcomers}
    found = []
    for where, state in store.states.items():
        new = election.repaired(state, nodes, min_isr=state.min_isr)
        if new is not None:
            kept = {node: alive[node] for node in new.isr}
            found.append(Decision(where, new, {**kept, **newcomers}))
    return found


def _rotated(n: int) -> tuple[int, ...]:
    start = n % len(NODES)
    return NODES[start:] + NODES[:start]
