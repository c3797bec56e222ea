"""A node without others: it leads all its partitions."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from millstream.broker.node.adopting import mark_begun, take_over
from millstream.broker.node.cluster import NodeAddress
from millstream.broker.node.data_directory import DataDirectory
from millstream.broker.node.state import NodeState
from millstream.cluster.metadata import ClusterMetadata, start_alone
from millstream.cluster.state import NO_LEADER, PartitionState, Reassignment, TopicState
from millstream.cluster.stores.embedded import EmbeddedStore, open_embedded_store
from millstream.cluster.stores.store import Node
from millstream.config import BrokerConfig
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.replication.partition import Partition
from millstream.replication.table import PartitionTable
from millstream.storage.log import Log
from millstream.wire.message import Message, Request

M = TypeVar("M", bound=Message)

if TYPE_CHECKING:
    from millstream.cluster.adoption import AdoptionPlan


async def open_own_store(
    disk: DataDirectory, plan: "AdoptionPlan | None", *, broker_id: int
) -> EmbeddedStore:
    """The database in the data directory that holds the topics. With a plan, Kafka's topics
    are adopted into it first."""
    disk.store.owner.keep()
    if plan is not None:
        mark_begun(disk.path)
    store = await open_embedded_store(disk.path)
    if plan is not None:
        await take_over(plan, store, broker_id=broker_id)
    return store


async def begin_alone(
    store: EmbeddedStore, disk: DataDirectory, config: BrokerConfig, *, broker_id: int
) -> ClusterMetadata:
    alone = await start_alone(
        store,
        broker_id=broker_id,
        random_bytes=os.urandom,
        cluster_id=disk.store.owner.cluster_id,
    )
    return ClusterMetadata(alone, config, broker_id=broker_id, random_bytes=os.urandom)


class Standalone:
    """Implements `Cluster`."""

    def __init__(
        self,
        node: NodeState,
        store: EmbeddedStore,
        advertised: Callable[[str], tuple[str, int]],
    ) -> None:
        self.peers = NoPeers()
        self.followers = NoFollowers()
        self.elections = NoElections(node.node_id, node.partitions)
        # Called when a topic is deleted; wired after `Topics` is created.
        self.forget_topic: Callable[[TopicState], None] = lambda topic: None
        self._node = node
        self._store = store
        self._advertised = advertised

    @property
    def controller_id(self) -> int:
        return self._node.node_id

    @property
    def is_fenced(self) -> bool:
        return False

    def why_not_ready(self) -> None:
        return

    def brokers(self, listener: str) -> list[NodeAddress]:
        rack = self._node.config.optional_string("broker.rack")
        return [NodeAddress(self._node.node_id, *self._advertised(listener), rack)]

    def departed(self, listener: str) -> list[NodeAddress]:
        return []

    def reachable_leader(self, topic: TopicState, index: int) -> int:
        return topic.partitions[index].leader if self._is_online(topic, index) else NO_LEADER

    def offline_replicas(self, topic: TopicState, index: int) -> list[int]:
        return [] if self._is_online(topic, index) else list(topic.partitions[index].replicas)

    def seen_nodes(self) -> tuple[int, int]:
        # Partitions that are not open yet, or whose disk has failed, are offline whatever their
        # state says.
        partitions = self._node.partitions
        return partitions.generation.number, partitions.changes

    def _is_online(self, topic: TopicState, index: int) -> bool:
        found = self._node.partitions.find(topic.name, index)
        return found is not None and found.offline_reason is None

    def other_leader(self, topic: str, index: int) -> int | None:
        return None

    def internal_replicas(self, wanted: int) -> int:
        return 1

    def is_proof(self, node_id: int, challenge: bytes, proof: bytes) -> bool:
        return False

    def hosts(self, state: PartitionState) -> bool:
        return True

    def open(self, where: TopicPartition, topic: TopicState, found: Log) -> Partition:
        epoch = topic.partitions[where.partition].leader_epoch
        found.epochs.assign(epoch, found.next_offset)
        return Partition(
            where,
            topic.topic_id,
            found,
            leader_id=self._node.node_id,
            leader_epoch=epoch,
            generation=self._node.partitions.generation,
            on_disk_failure=self._node.disk.fail,
        )

    def opened(self, places: Iterable[TopicPartition]) -> None:
        """They lead from the moment they are open."""

    def closing(self, partition: Partition) -> None:
        """A partition without followers has no background work."""

    def topic_deleted(self, topic: TopicState) -> None:
        self.forget_topic(topic)

    def states_told(self, states: Mapping[TopicPartition, Node]) -> None:
        """No other node is the controller."""

    @property
    def may_delete_strays(self) -> bool:
        # Only its database records which topics exist, and that may be what was lost.
        return False

    async def register(self) -> None:
        """No other node has to know."""

    def disk_failed(self) -> None:
        """No other node can take over."""

    async def hand_over(self) -> None:
        """No other node can take over."""

    async def stop(self) -> None:
        """There is no background work."""

    async def leave(self) -> None:
        await self._store.close()


class NoPeers:
    """There are no other nodes: `other_leader` never returns one."""

    async def ask(
        self, broker_id: int, request: Request[M], version: int, *, timeout_seconds: float
    ) -> M:
        raise AssertionError(f"a standalone node asked node {broker_id}")


class NoElections:
    """The leader is the only replica, and stays so."""

    def __init__(self, node_id: int, partitions: PartitionTable) -> None:
        self._node_id = node_id
        self._partitions = partitions

    async def elect_preferred(self, where: TopicPartition) -> None:
        found = self._find(where)
        if found.offline_reason is not None:
            raise KafkaError(KafkaCode.PREFERRED_LEADER_NOT_AVAILABLE, found.offline_reason)
        raise KafkaError(KafkaCode.ELECTION_NOT_NEEDED, "the leader is the only replica")

    elect_uncleanly = elect_preferred

    async def reassign(
        self, where: TopicPartition, target: Sequence[int], *, may_resize: bool = True
    ) -> None:
        self._find(where)
        if list(target) != [self._node_id]:
            raise KafkaError(
                KafkaCode.INVALID_REPLICA_ASSIGNMENT, f"broker {self._node_id} is the only one"
            )

    async def cancel(self, where: TopicPartition) -> None:
        self._find(where)
        raise KafkaError(KafkaCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel")

    def reassignments(self) -> list[Reassignment]:
        return []

    def _find(self, where: TopicPartition) -> Partition:
        found = self._partitions.find(where.topic, where.partition)
        if found is None:
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return found


class NoFollowers:
    """A standalone node has no partition that other nodes follow."""

    def is_held_back(self, partition: Partition, replica_id: int) -> bool:
        raise AssertionError(f"node {replica_id} fetches from a standalone node")

    def fetched(self, partition: Partition, replica_id: int, size_bytes: int) -> None:
        raise AssertionError(f"node {replica_id} fetches from a standalone node")
