"""This node's replicas in a cluster: opened, given their roles, and taken away.

Listens to the cluster's image. What a partition does in its role is in `replication/`; here
is only which partitions this node has, and who is told when a role changes.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.membership.peers import Peers
from millstream.broker.membership.throttles import Throttles
from millstream.cluster.coordination import CoordinationFailed
from millstream.cluster.membership import Membership, Outdated
from millstream.cluster.observer import ImageChange
from millstream.cluster.state import NO_BROKER_EPOCH, PartitionState, TopicState
from millstream.errors import LogDirFailed
from millstream.model import TopicId, TopicPartition
from millstream.replication.asking import FetcherSettings, Surroundings
from millstream.replication.cluster_commit import ClusterCommit
from millstream.replication.fetcher import Fetchers
from millstream.replication.isr import IsrKeeper, NotWritten
from millstream.replication.leadership import IsrChange
from millstream.replication.node import Node
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role
from millstream.storage.log import Log

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
# How often those who stay behind are looked for, in the time that they may.
_LOOKS_PER_LAG: Final = 2


class Replicas:
    def __init__(self, broker: "Broker", membership: Membership, durability: ClusterCommit) -> None:
        self._broker = broker
        self._membership = membership
        self._node = Node(
            broker.node_id,
            has_lease=membership.lease.is_valid,
            wait_synced=durability.wait_if_alone,
            on_disk_failure=broker.fail_disk,
            may_cut=broker.store.may_cut,
            was_cut=broker.store.was_cut,
            on_doubt=lambda partition, offset: self.on_doubt(partition, offset),
        )
        self.throttles = Throttles(broker)
        self._fetchers = Fetchers(
            Surroundings(
                broker_id=broker.node_id,
                broker_epoch=lambda: membership.broker_epoch,
                address=self._address,
                checkpoint=broker.checkpoint,
                is_held_back=self.throttles.holds_back_receiving,
                took=self.throttles.received,
                wait_counted=durability.wait_counted,
                clock=broker.clock,
                settings=self._fetcher_settings,
            )
        )
        self._isr = IsrKeeper(
            self._write_isr,
            alive=self._alive,
            has_lease=membership.lease.is_valid,
            lag_ms_max=lambda: broker.config.int("replica.lag.time.max.ms"),
            clock=broker.clock,
        )
        self.peers = Peers(broker.node_id, self._address)
        self._is_active = False
        self._high_watermarks: Mapping[TopicPartition, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Called with a partition whose role is another one now.
        self.on_role: list[Callable[[ReplicatedPartition], None]] = []
        # Called with a partition and an offset where its log may be damaged.
        self.on_doubt: Callable[[ReplicatedPartition, int], None] = lambda partition, offset: None

    def start(self) -> None:
        self._broker.partitions.elsewhere = self
        self.on_role.append(self._broker.coordinators.shards.role_changed)
        self.on_role.append(self._broker.transactions.shards.role_changed)
        self._high_watermarks = self._broker.store.high_watermarks()
        self._spawn(self._look_after_isr())

    async def stop(self) -> None:
        self._is_active = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._isr.stop()
        await self._fetchers.stop()
        self.peers.close()

    # -- what the cluster tells -------------------------------------------------------

    def image_changed(self, change: ImageChange) -> None:
        for topic in change.deleted:
            self._forget_topic(topic)
        for name in change.created:
            self._open_topic(name)
            self._broker.coordinators.shards.topic_created(name)
            self._broker.transactions.shards.topic_created(name)
        for name in dict.fromkeys(filter(None, map(self._lacks, change.partitions))):
            self._open_topic(name)
        for where in change.partitions:
            self._apply(where)
        if change.has_broker_configs:
            self._broker.topics.apply_broker_config()
        for name in change.configs:
            self._broker.topics.apply_topic_config(name)

    def _open_topic(self, name: str) -> None:
        state = self._broker.image.topics.get(name)
        if state is not None:
            self._broker.topics.open_or_wait(state)

    def _lacks(self, where: TopicPartition) -> str | None:
        """The topic, where this is a new partition of it, or one that is to be here now."""
        state = self._broker.image.partition(where.topic, where.partition)
        if state is None:
            return None
        is_missing = self._broker.partitions.find(where.topic, where.partition) is None
        is_new = state.version == 0
        return where.topic if is_new or (is_missing and self.is_here(state)) else None

    def opened(self, places: Iterable[TopicPartition]) -> None:
        """Their logs are there: they take the roles that the image has for them."""
        for where in places:
            self._apply(where)

    def fenced(self, reason: str) -> None:
        self._is_active = False
        for partition in self._replicated():
            self._fetchers.leave(partition)
            partition.stand_by()
            self._tell(partition)

    def active(self, broker_epoch: int) -> None:
        self._spawn(self._take_roles(broker_epoch))

    async def _take_roles(self, broker_epoch: int) -> None:
        """Roles as the store has them *after* this node was registered.

        A state from before may still name it as leader: as what it was before it started
        anew, in an epoch that its log may have lost records of."""
        membership = self._membership
        while membership.broker_epoch == broker_epoch:
            try:
                await membership.store.sync()
                await membership.observer.read_again(self._own_places())
                break
            except CoordinationFailed as error:
                log.debug("roles are not known yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
        if membership.broker_epoch != broker_epoch:
            return
        self._is_active = True
        for name in list(self._broker.image.topics):
            self._apply_topic(name)

    def _own_places(self) -> list[TopicPartition]:
        me = self._broker.node_id
        return [
            TopicPartition(topic.name, number)
            for topic in self._broker.image.topics.values()
            for number, state in enumerate(topic.partitions)
            if state.leader == me or me in state.isr
        ]

    # -- partitions -------------------------------------------------------------------

    def has_partition(self, name: str, index: int) -> bool:
        """In the cluster, here or elsewhere."""
        return self._broker.image.partition(name, index) is not None

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self._broker.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def is_here(self, state: PartitionState) -> bool:
        """Does this node have a replica?"""
        return self._broker.node_id in state.replicas

    def has_here(self, where: TopicPartition) -> bool:
        state = self._broker.image.partition(where.topic, where.partition)
        return state is not None and self.is_here(state)

    def open(self, where: TopicPartition, topic: TopicState, found: Log) -> Partition:
        return ReplicatedPartition(
            where,
            topic.topic_id,
            found,
            high_watermark=self._high_watermarks.get(where, 0),
            node=self._node,
        )

    def _apply_topic(self, name: str) -> None:
        topic = self._broker.image.topics.get(name)
        for number in range(0 if topic is None else len(topic.partitions)):
            self._apply(TopicPartition(name, number))

    def _apply(self, where: TopicPartition) -> None:
        state = self._broker.image.partition(where.topic, where.partition)
        partition = self._broker.partitions.find(where.topic, where.partition)
        if state is None or not isinstance(partition, ReplicatedPartition):
            return
        if not self.is_here(state):
            self._remove(partition)
        elif self._is_active:
            self._give_role(partition, Role.of(state))

    def _give_role(self, partition: ReplicatedPartition, role: Role) -> None:
        before = (partition.leader_id, partition.leader_epoch)
        partition.apply(role, now_ms=self._now_ms())
        if (partition.leader_id, partition.leader_epoch) == before:
            return
        if partition.next_fetch() is not None:
            self._fetchers.follow(partition, partition.leader_id)
        else:
            self._fetchers.leave(partition)
        self._tell(partition)

    def _tell(self, partition: ReplicatedPartition) -> None:
        for call in self.on_role:
            call(partition)

    # -- damaged ones -----------------------------------------------------------------

    def silence(self, partition: ReplicatedPartition) -> None:
        """From now on no leader hears how far this log goes."""
        partition.is_damaged = True
        self._fetchers.leave(partition)

    def speak_again(self, partition: ReplicatedPartition) -> None:
        partition.is_damaged = False
        if partition.next_fetch() is not None:
            self._fetchers.follow(partition, partition.leader_id)

    def renew(self, partition: ReplicatedPartition) -> None:
        """Given up in the cluster's state: an empty log takes the place of the damaged one."""
        # The role first: who waits here is to look for the leader.
        self._apply(partition.topic_partition)
        self._broker.partitions.remove(partition)
        self._close(partition)
        self._open_topic(partition.topic_partition.topic)

    def open_anew(self, where: TopicPartition) -> None:
        """As `renew`, for a log that could not be opened at all."""
        try:
            self._broker.store.delete(where)
        except LogDirFailed as error:
            self._broker.fail_disk(str(error))
        self._open_topic(where.topic)

    def _remove(self, partition: ReplicatedPartition) -> None:
        """Given to other nodes."""
        log.info("%s has no replica here any more", partition.topic_partition)
        self._broker.partitions.remove(partition)
        self._close(partition)

    def _forget_topic(self, topic: TopicState) -> None:
        for partition in self._broker.partitions.remove_topic(topic.name):
            self._close(partition)
        self._broker.topics.version += 1
        self._broker.coordinators.topics_are_gone([topic.name])

    def _close(self, partition: Partition) -> None:
        partition.go_away()
        if isinstance(partition, ReplicatedPartition):
            self._fetchers.leave(partition)
            partition.stand_by()
            self._tell(partition)
        self._broker.durability.forget(partition)
        try:
            self._broker.store.delete(partition.topic_partition)
        except LogDirFailed as error:
            self._broker.fail_disk(str(error))

    def _replicated(self) -> Iterable[ReplicatedPartition]:
        for partition in self._broker.partitions:
            if isinstance(partition, ReplicatedPartition):
                yield partition

    # -- who is in sync ---------------------------------------------------------------

    def fetched_by(self, partition: ReplicatedPartition, replica_id: int) -> None:
        """A follower that is out of sync may have caught up with this."""
        leadership = partition.leadership
        if leadership is not None and replica_id not in leadership.isr:
            self._isr.look_at(partition)

    async def _look_after_isr(self) -> None:
        while True:
            lag_ms = self._broker.config.int("replica.lag.time.max.ms")
            await asyncio.sleep(lag_ms / 1000 / _LOOKS_PER_LAG)
            for partition in list(self._replicated()):
                self._isr.look_at(partition)

    async def _write_isr(self, where: TopicPartition, change: IsrChange) -> Role:
        state = self._broker.image.partition(where.topic, where.partition)
        if state is None or state.version != change.version:
            raise NotWritten("the image has another state by now")
        try:
            written = await self._membership.change_isr(
                where, state, change.isr, dict(change.joining)
            )
        except Outdated as error:
            raise NotWritten(str(error)) from error
        return Role.of(written)

    def _alive(self) -> Mapping[int, int]:
        return {
            broker.id: broker.epoch
            for broker in self._broker.image.brokers.values()
            if broker.epoch != NO_BROKER_EPOCH and not broker.is_stopping
        }

    # -- other nodes ------------------------------------------------------------------

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._broker.image.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            return None
        endpoint = broker.endpoint(self._broker.inter_broker_listener) or broker.endpoints[0]
        return endpoint.host, endpoint.port

    def _fetcher_settings(self) -> FetcherSettings:
        config = self._broker.config
        return FetcherSettings(
            wait_ms=config.int("replica.fetch.wait.max.ms"),
            min_bytes=config.int("replica.fetch.min.bytes"),
            partition_bytes=config.int("replica.fetch.max.bytes"),
            response_bytes=config.int("replica.fetch.response.max.bytes"),
            timeout_seconds=config.int("replica.socket.timeout.ms") / 1000,
            pause_seconds_max=config.int("replica.fetch.backoff.ms") / 1000,
        )

    def _now_ms(self) -> int:
        return int(self._broker.clock.monotonic() * 1000)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
