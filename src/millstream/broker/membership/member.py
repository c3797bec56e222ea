"""A node as a member of a cluster: how it joins and how it leaves.

The order makes it safe. The node claims its directory before any other node learns of it.
It knows whether data may be lost before it announces itself. The controller takes it out of
every in-sync set before it opens its logs. It registers only when the logs and its port are
open.
"""

import asyncio
import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.membership.healing import Healing
from millstream.broker.membership.in_sync import InSyncReplicas
from millstream.broker.membership.node_security import node_security
from millstream.broker.membership.nodes import Nodes
from millstream.broker.membership.peers import Peers
from millstream.broker.membership.roles import Roles
from millstream.broker.membership.throttles import Throttles
from millstream.broker.node.addresses import Addresses
from millstream.broker.node.cluster import NodeAddress
from millstream.broker.node.data_directory import DataDirectory
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.upkeep.scrubbing import Scrubbing
from millstream.client.aio import Connection, NoAnswer
from millstream.client.node_proof import node_proof, prove
from millstream.client.security import Security
from millstream.clock import Clock
from millstream.cluster.controller import policy_of
from millstream.cluster.joining import Session
from millstream.cluster.member_publisher import MemberPublisher
from millstream.cluster.membership import Membership
from millstream.cluster.metadata import ClusterMetadata
from millstream.cluster.requested_elections import Elections
from millstream.cluster.state import (
    NO_LEADER,
    BrokerState,
    Endpoint,
    LogEnd,
    PartitionState,
    TopicState,
)
from millstream.cluster.stores.store import Node as StoredNode
from millstream.config import BrokerConfig
from millstream.model import TopicId, TopicPartition
from millstream.replication.cluster_commit import ClusterCommit
from millstream.replication.fetch_connection import FetcherNode, FetcherSettings
from millstream.replication.node import Node
from millstream.replication.partition import Partition
from millstream.replication.replica_fetcher import ReplicaFetchers
from millstream.replication.replicated import ReplicatedPartition
from millstream.storage.log import Log
from millstream.wire.apis.tell_partition_states import (
    TellPartitionStatesRequest,
    ToldPartitionState,
)

log = logging.getLogger(__name__)

OpenSession = Callable[[], Awaitable[Session]]

_TOKEN_BYTES: Final = 12
_HAND_OVER_SECONDS_MAX: Final = 30.0
_PROOF_SECONDS_MAX: Final = 5.0
_SECRET_BYTES: Final = 32
_TELL_SECONDS_MAX: Final = 2.0
# At least: one may be lost, or be late.
_FETCHES_PER_SESSION: Final = 3


def new_membership(
    open_session: OpenSession,
    disk: DataDirectory,
    config: BrokerConfig,
    *,
    broker_id: int,
    clock: Clock,
) -> tuple[Membership, ClusterMetadata]:
    """For a directory that is claimed and whose logs are not loaded yet."""
    store = disk.store
    membership = Membership(
        open_session,
        broker_id=broker_id,
        clock=clock,
        new_token=lambda: os.urandom(_TOKEN_BYTES).hex(),
        new_cluster_id=lambda: store.owner.cluster_id,
        new_secret=lambda: os.urandom(_SECRET_BYTES),
        policy=policy_of(lambda: metadata.effective_config),
        cluster_id=None if store.owner.is_new else store.owner.cluster_id,
        # One value for the whole cluster, as in Kafka 4.1: ELRs depend on it.
        new_cluster_options={"min.insync.replicas": str(config.int("min.insync.replicas"))},
    )
    metadata = ClusterMetadata(
        MemberPublisher(membership), config, broker_id=broker_id, random_bytes=os.urandom
    )
    return membership, metadata


async def join(membership: Membership, disk: DataDirectory) -> None:
    """An image, a broker epoch, and a place in no in-sync set. Raises StartError."""
    last_shutdown = disk.store.last_shutdown
    await membership.join(is_suspect=last_shutdown.may_have_lost_data())
    disk.store.owner.keep(membership.image.cluster_id)
    # Now the controller has taken this node out of every in-sync set.
    last_shutdown.forget_failed_disk()


class Member:
    """Implements `Cluster`."""

    def __init__(
        self,
        node: NodeState,
        membership: Membership,
        addresses: Addresses,
        durability: ClusterCommit,
    ) -> None:
        self.membership = membership
        self._node = node
        self._addresses = addresses
        self._durability = durability
        nodes = Nodes(lambda: node.image, lambda: addresses.inter_broker_listener)
        self._nodes = nodes
        self.elections = Elections(membership)
        # At once: what cannot be used is an error of the start.
        self._security()
        self.peers = Peers(node.node_id, nodes.address, self._prove, self._security)
        self.throttles = Throttles(node)
        self.in_sync = InSyncReplicas(node, membership, nodes)
        self.followers = ThrottledFollowers(
            self.throttles, self.in_sync, heard=self.membership.contact.heard
        )
        self._fetchers = ReplicaFetchers(self._fetcher_node(nodes))
        self._replica_node = self._new_replica_node()
        self._high_watermarks = node.disk.store.checkpoints.high_watermarks()
        self._leaving: asyncio.Task[None] | None = None
        # By node: states that it should know soon, and who tells it.
        self._untold: dict[int, dict[TopicPartition, StoredNode]] = {}
        self._telling: dict[int, asyncio.Task[None]] = {}
        self._healing_offline: asyncio.Task[None] | None = None
        # Set by `attach`, before any partition is opened.
        self.roles: Roles
        self._producer_ids: ProducerIds
        self._healing: Healing
        self._scrubbing: Scrubbing

    def attach(self, topics: Topics, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids
        self.roles = Roles(self._node, topics, self.membership, self._fetchers)
        self._healing = Healing(self._node, self.roles, self.elections)
        self._scrubbing = Scrubbing(self._node, self._healing.heal)
        self._node.partitions.elsewhere = self

    def _new_replica_node(self) -> Node:
        disk = self._node.disk
        return Node(
            self._node.node_id,
            generation=self._node.partitions.generation,
            has_lease=self.membership.lease.is_valid,
            wait_synced=self._durability.wait_if_alone,
            on_disk_failure=disk.fail,
            may_cut=disk.store.checkpoints.may_cut,
            was_cut=disk.store.checkpoints.was_cut,
            on_doubt=lambda where, offset: self._scrubbing.doubt(where, offset),
        )

    def _fetcher_node(self, nodes: Nodes) -> FetcherNode:
        return FetcherNode(
            broker_id=self._node.node_id,
            broker_epoch=lambda: self.membership.broker_epoch,
            address=nodes.address,
            prove=self._prove,
            checkpoint=self._node.disk.checkpoint,
            is_held_back=self.throttles.holds_back_receiving,
            took=self.throttles.received,
            heard=self.membership.contact.heard,
            wait_counted=self._durability.wait_counted,
            clock=self._node.clock,
            settings=self._fetcher_settings,
            security=self._security,
        )

    def _security(self) -> Security:
        return node_security(self._node.config, self._addresses.between_nodes)

    def _fetcher_settings(self) -> FetcherSettings:
        config = self._node.config
        return FetcherSettings(
            wait_ms=self._fetch_wait_ms(),
            min_bytes=config.int("replica.fetch.min.bytes"),
            partition_bytes=config.int("replica.fetch.max.bytes"),
            response_bytes=config.int("replica.fetch.response.max.bytes"),
            timeout_seconds=config.int("replica.socket.timeout.ms") / 1000,
            pause_seconds_max=config.int("replica.fetch.backoff.ms") / 1000,
        )

    def _fetch_wait_ms(self) -> int:
        """Idle nodes hear each other only by their fetches: with longer waits, they would seem to
        be cut off whenever ZooKeeper is silent."""
        wanted_ms = self._node.config.int("replica.fetch.wait.max.ms")
        session_seconds = self.membership.lease.session_seconds
        if not session_seconds:
            return wanted_ms
        return min(wanted_ms, int(session_seconds * 1000) // _FETCHES_PER_SESSION)

    # -- the cluster ------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        return self._node.image.controller_id

    @property
    def is_fenced(self) -> bool:
        return self.membership.is_fenced

    def why_not_ready(self) -> str | None:
        return self.membership.why_not_ready()

    def brokers(self, listener: str) -> list[NodeAddress]:
        return _at_listener(self._node.image.brokers.values(), listener)

    def departed(self, listener: str) -> list[NodeAddress]:
        return _at_listener(self.membership.departed(), listener)

    def reachable_leader(self, topic: TopicState, index: int) -> int:
        if self.is_fenced:
            return NO_LEADER
        leader = topic.partitions[index].leader
        # A client that is sent to a leader which has just died retries only much later.
        is_reachable = leader in self._node.image.brokers and not self.membership.is_suspect(leader)
        return leader if is_reachable else NO_LEADER

    def offline_replicas(self, topic: TopicState, index: int) -> list[int]:
        live = self._node.image.brokers
        return [replica for replica in topic.partitions[index].replicas if replica not in live]

    def seen_nodes(self) -> tuple[bool, frozenset[int], frozenset[int]]:
        live = frozenset(self._node.image.brokers)
        return self.is_fenced, live, frozenset(filter(self.membership.is_suspect, live))

    def other_leader(self, topic: str, index: int) -> int | None:
        state = self._node.image.partition(topic, index)
        if state is None or state.leader == self._node.node_id:
            return None
        return state.leader

    def internal_replicas(self, wanted: int) -> int:
        # With fewer, the first failover would lose the commits of groups. So the topic is not
        # created before there are enough nodes.
        return wanted

    @property
    def may_delete_strays(self) -> bool:
        return not self.membership.is_fenced

    # -- partitions -------------------------------------------------------------------

    def has_partition(self, name: str, index: int) -> bool:
        """In the cluster, on this node or another."""
        return self._node.image.partition(name, index) is not None

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self._node.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def is_proof(self, node_id: int, challenge: bytes, proof: bytes) -> bool:
        wanted = node_proof(self.membership.secret, challenge, node_id)
        return hmac.compare_digest(wanted, proof)

    async def _prove(self, connection: Connection) -> None:
        """Have another node know this one. Raises NoAnswer."""
        await prove(
            connection,
            self._node.node_id,
            self.membership.secret,
            timeout_seconds=_PROOF_SECONDS_MAX,
        )

    def hosts(self, state: PartitionState) -> bool:
        return self._node.node_id in state.replicas

    def open(self, where: TopicPartition, topic: TopicState, found: Log) -> Partition:
        high_watermark = self._high_watermarks.get(where, 0)
        return ReplicatedPartition(
            where, topic.topic_id, found, high_watermark=high_watermark, node=self._replica_node
        )

    def opened(self, places: Iterable[TopicPartition]) -> None:
        self.roles.apply(places)

    def closing(self, partition: Partition) -> None:
        if isinstance(partition, ReplicatedPartition):
            self.roles.stand_by(partition)

    def topic_deleted(self, topic: TopicState) -> None:
        """The change of the image does the rest, on this node as on every other."""

    def states_told(self, states: Mapping[TopicPartition, StoredNode]) -> None:
        if not self.membership.is_fenced:
            self.membership.observer.enter_told(states)

    def _tell_states(self, states: Mapping[TopicPartition, StoredNode]) -> None:
        """This node is the controller, and has written these."""
        # One that has just left may be alive and cut off from ZooKeeper alone. It would go on
        # naming itself as the leader, and clients that ask it would ask it for ever.
        for broker in (*self._node.image.brokers.values(), *self.membership.departed()):
            if broker.id != self._node.node_id:
                waiting = self._untold.setdefault(broker.id, {})
                waiting.update(states)
                if broker.id not in self._telling:
                    task = asyncio.get_running_loop().create_task(self._tell(broker))
                    self._telling[broker.id] = task

    async def _tell(self, broker: BrokerState) -> None:
        """Everything that waits, in one request after the other: a connection takes one."""
        broker_id, address = broker.id, self._nodes.address_of(broker)
        try:
            while (states := self._untold.pop(broker_id, None)) is not None:
                request = _told_states(states)
                await self.peers.ask(
                    broker_id, request, 0, timeout_seconds=_TELL_SECONDS_MAX, address=address
                )
        except NoAnswer as problem:
            # Its watches tell it, too.
            self._untold.pop(broker_id, None)
            log.debug("node %d was not told of new states: %s", broker_id, problem)
        finally:
            del self._telling[broker_id]

    # -- a node's life ----------------------------------------------------------------

    async def register(self) -> None:
        self.in_sync.start()
        self.membership.subscribe(self.roles)
        self.membership.on_states_written = self._tell_states
        await self.membership.register(self._describe)
        self._producer_ids.keep_spare()
        self._scrubbing.start()
        heal = self._healing.heal_offline()
        self._healing_offline = asyncio.get_running_loop().create_task(heal)

    def _describe(self) -> BrokerState:
        store = self._node.disk.store
        between_nodes = self._addresses.inter_broker_listener
        protocols = self._addresses.protocols
        endpoints = tuple(
            Endpoint(name, *self._addresses.advertised(name), protocols[name])
            # The one between nodes first: other nodes watch it, and a client's need not work there.
            for name in sorted(protocols, key=lambda name: name != between_nodes)
        )
        log_ends = []
        for where, leader_epoch in self.membership.lost_partitions():
            found = store.logs.get(where)
            if found is not None:
                end = LogEnd(where, leader_epoch, found.epochs.latest, found.next_offset)
                log_ends.append(end)
        rack = self._node.config.optional_string("broker.rack")
        return BrokerState(self._node.node_id, endpoints, rack, log_ends=tuple(log_ends))

    def disk_failed(self) -> None:
        """Other nodes lead from now on, and the next start reports that data may be lost."""
        self._node.disk.store.last_shutdown.note_failed_disk()
        self.roles.fenced("the disk failed")
        self._leaving = asyncio.get_running_loop().create_task(self.membership.leave())

    async def hand_over(self) -> None:
        if self._node.config.boolean("controlled.shutdown.enable"):
            await self.membership.hand_over(seconds_max=_HAND_OVER_SECONDS_MAX)

    async def stop(self) -> None:
        await self._scrubbing.stop()
        if self._healing_offline is not None:
            # It was registered, so the rest of `register` has started too.
            await self._producer_ids.stop()
            self._healing_offline.cancel()
            await asyncio.gather(self._healing_offline, return_exceptions=True)
        for task in list(self._telling.values()):
            task.cancel()
        await self.roles.stop()
        await self.in_sync.stop()
        await self._fetchers.stop()
        self.peers.close()

    async def leave(self) -> None:
        if self._leaving is not None:
            await asyncio.gather(self._leaving, return_exceptions=True)
        else:
            await self.membership.leave()


class ThrottledFollowers:
    """Implements `Followers`."""

    def __init__(
        self, throttles: Throttles, in_sync: InSyncReplicas, *, heard: Callable[[int], None]
    ) -> None:
        self._throttles = throttles
        self._in_sync = in_sync
        self._heard = heard

    def is_held_back(self, partition: Partition, replica_id: int) -> bool:
        assert isinstance(partition, ReplicatedPartition)
        return self._throttles.holds_back_sending(partition, replica_id)

    def fetched(self, partition: Partition, replica_id: int, size_bytes: int) -> None:
        assert isinstance(partition, ReplicatedPartition)
        if size_bytes:
            self._throttles.sent(partition, replica_id, size_bytes)
        self._heard(replica_id)
        self._in_sync.fetched_by(partition, replica_id)


def _at_listener(nodes: Iterable[BrokerState], listener: str) -> list[NodeAddress]:
    return [
        NodeAddress(one.id, endpoint.host, endpoint.port, one.rack)
        for one in nodes
        if (endpoint := one.endpoint(listener)) is not None
    ]


def _told_states(states: Mapping[TopicPartition, StoredNode]) -> TellPartitionStatesRequest:
    return TellPartitionStatesRequest(
        states=[
            ToldPartitionState(
                topic=where.topic,
                partition=where.partition,
                version=stored.version,
                data=stored.data,
            )
            for where, stored in states.items()
        ]
    )
