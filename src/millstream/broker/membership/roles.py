"""Turns changes of the cluster's image into the roles of this node's replicas.

`replication/` says what a partition does in its role. Here it is decided which partitions
are opened and closed, when they may take their roles, and what is notified.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from millstream.broker.membership.in_sync import replicated
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.membership import Membership
from millstream.cluster.observer import ImageChange
from millstream.cluster.stores.store import CoordinationFailed
from millstream.model import TopicPartition
from millstream.replication.replica_fetcher import ReplicaFetchers
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
# Changes that are logged one by one.
_LOGGED_MAX: Final = 20


class Roles:
    """Listens to the membership."""

    def __init__(
        self, node: NodeState, topics: Topics, membership: Membership, fetchers: ReplicaFetchers
    ) -> None:
        self._node = node
        self._topics = topics
        self._membership = membership
        self._fetchers = fetchers
        # False until this node is registered, and while it is fenced: no partition has a role then.
        self._is_active = False
        self._taking: asyncio.Task[None] | None = None
        # Called with a partition whose role has changed.
        self.on_role: list[Callable[[ReplicatedPartition], None]] = []
        # Called with the name of a topic that some node has created.
        self.on_created: list[Callable[[str], None]] = []

    async def stop(self) -> None:
        self._is_active = False
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)

    # -- callbacks of the membership --------------------------------------------------

    def image_changed(self, change: ImageChange) -> None:
        for topic in change.deleted:
            try:
                self._topics.forget(topic)
            except Exception:
                # Deletions are told only once, so each must be heard.
                log.exception("not everything has heard that topic %s is deleted", topic.name)
        for name in change.created:
            self.open_topic(name)
            for call in self.on_created:
                call(name)
        for name in dict.fromkeys(filter(None, map(self._lacks, change.partitions))):
            self.open_topic(name)
        self.apply(change.partitions)
        if change.has_broker_configs:
            self._topics.apply_broker_config()
        for name in change.configs:
            self._topics.apply_topic_config(name)

    def fenced(self, reason: str) -> None:
        self._is_active = False
        for partition in replicated(self._node):
            self.stand_by(partition)

    def active(self, broker_epoch: int) -> None:
        if self._taking is not None:
            self._taking.cancel()
        self._taking = asyncio.get_running_loop().create_task(self._take_roles(broker_epoch))

    async def _take_roles(self, broker_epoch: int) -> None:
        """Apply the roles that the store has *after* this node was registered.

        An earlier state may still name it as leader: for its previous incarnation, in an epoch
        of which its log may have lost records."""
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
        for topic in list(self._node.image.topics.values()):
            self.apply(TopicPartition(topic.name, n) for n in range(len(topic.partitions)))

    def _own_places(self) -> list[TopicPartition]:
        me = self._node.node_id
        return [
            TopicPartition(topic.name, number)
            for topic in self._node.image.topics.values()
            for number, state in enumerate(topic.partitions)
            if state.leader == me or me in state.isr
        ]

    # -- partitions -------------------------------------------------------------------

    def open_topic(self, name: str) -> None:
        state = self._node.image.topics.get(name)
        if state is not None:
            self._topics.open_or_wait(state)

    def _lacks(self, where: TopicPartition) -> str | None:
        """The topic, if this is a new partition of it, or one that now belongs here."""
        state = self._node.image.partition(where.topic, where.partition)
        if state is None:
            return None
        is_missing = self._node.partitions.find(where.topic, where.partition) is None
        is_new = state.version == 0
        return where.topic if is_new or (is_missing and self._node.cluster.hosts(state)) else None

    def apply(self, places: Iterable[TopicPartition]) -> None:
        """Give partitions their roles in the image."""
        changed: list[ReplicatedPartition] = []
        for where in places:
            state = self._node.image.partition(where.topic, where.partition)
            partition = self._node.partitions.find(where.topic, where.partition)
            if state is None or not isinstance(partition, ReplicatedPartition):
                continue
            if not self._node.cluster.hosts(state):
                log.info("%s has no replica here any more", where)
                self._node.partitions.remove(partition)
                self._topics.close(partition)
            elif self._is_active and self._give_role(partition, Role.of(state)):
                changed.append(partition)
        _log_roles(changed)

    def _give_role(self, partition: ReplicatedPartition, role: Role) -> bool:
        """Whether the leader has changed."""
        before = (partition.leader_id, partition.leader_epoch)
        partition.apply(role, now_ms=self._node.now_ms())
        if (partition.leader_id, partition.leader_epoch) == before:
            return False
        if partition.next_fetch() is not None:
            self._fetchers.follow(partition, partition.leader_id)
        else:
            self._fetchers.leave(partition)
        self._report(partition)
        return True

    def stand_by(self, partition: ReplicatedPartition) -> None:
        """From now on the partition neither leads nor follows."""
        self._fetchers.leave(partition)
        partition.stand_by()
        self._report(partition)

    def _report(self, partition: ReplicatedPartition) -> None:
        for call in self.on_role:
            call(partition)

    # -- damaged ones -----------------------------------------------------------------

    def silence(self, partition: ReplicatedPartition) -> None:
        """From now on this node reports the end of this log to no leader."""
        partition.is_damaged = True
        self._fetchers.leave(partition)

    def speak_again(self, partition: ReplicatedPartition) -> None:
        partition.is_damaged = False
        if partition.next_fetch() is not None:
            self._fetchers.follow(partition, partition.leader_id)

    def replace_log(self, partition: ReplicatedPartition) -> None:
        """Given up in the cluster's state: replace the damaged log with an empty one."""
        where = partition.topic_partition
        # The role first: clients that wait here must look for the leader.
        self.apply([where])
        self._node.partitions.remove(partition)
        self._topics.close(partition)
        self.open_topic(where.topic)


def _log_roles(changed: Sequence[ReplicatedPartition]) -> None:
    """When a node fails, thousands change, and each line takes time that clients wait for."""
    level = logging.INFO if len(changed) <= _LOGGED_MAX else logging.DEBUG
    if level is logging.DEBUG:
        led = sum(partition.is_leader for partition in changed)
        log.info("new leaders of %d partitions; this node leads %d of them", len(changed), led)
    if not log.isEnabledFor(level):
        return
    for partition in changed:
        role, where, end = partition.role, partition.topic_partition, partition.log.next_offset
        text = "leads" if partition.is_leader else "follows"
        values = (text, where, role.leader_id, role.leader_epoch, end, role.isr)
        log.log(level, "%s %s leader=%d epoch=%d from=%d isr=%s", *values)
