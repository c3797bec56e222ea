"""The coordinators of this node, created when the first client asks for one.

Most of a node's imports are for groups and transactions. A node that has none starts
without them.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.broker.coordination.creation_quota import CreationQuota
from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.state import TopicState
from millstream.model import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from millstream.broker.coordination.coordinators import GroupCoordinators
    from millstream.broker.coordination.sharing import Sharing
    from millstream.broker.coordination.transactions import TransactionCoordinator
    from millstream.cluster.joining import Session


class Coordinators:
    def __init__(self, node: NodeState) -> None:
        self._node = node
        # Between `start` and `stop`; a coordinator created after `stop` is not started.
        self._is_serving = False
        # What addresses have begun: groups, transactional ids and producer ids.
        self.creations = CreationQuota()
        # In a cluster: the session with ZooKeeper, for groups that are mirrored there.
        self.mirror_session: Callable[[], Session] | None = None
        # Wired after both exist, because each needs the other.
        self.topics: Topics
        self.producer_ids: ProducerIds

    @cached_property
    def groups(self) -> "GroupCoordinators":
        from millstream.broker.coordination.coordinators import GroupCoordinators

        session = self.mirror_session
        if session is None or not self._node.config.boolean("zookeeper.consumers.mirror"):
            groups = GroupCoordinators(self._node, self.topics, self.creations)
        else:
            # Rarely configured, and every start would pay for the import.
            from millstream.broker.coordination.consumers_mirror import ConsumersMirror

            mirror = ConsumersMirror(self._node, lambda: groups.shards, session)
            groups = GroupCoordinators(
                self._node, self.topics, self.creations, mirror.machine(), mirror.run
            )
        if self._is_serving:
            groups.start()
        return groups

    @cached_property
    def transactions(self) -> "TransactionCoordinator":
        from millstream.broker.coordination.transactions import TransactionCoordinator

        transactions = TransactionCoordinator(
            self._node, self.topics, self.producer_ids, self.creations, lambda: self.groups
        )
        if self._is_serving:
            transactions.start()
        return transactions

    @cached_property
    def sharing(self) -> "Sharing":
        from millstream.broker.coordination.sharing import Sharing

        sharing = Sharing(self._node, self.topics, self.groups)
        if self._is_serving:
            sharing.start()
        return sharing

    @property
    def has_groups(self) -> bool:
        """Has any client used a group, now or before the last start?"""
        return "groups" in vars(self)

    @property
    def has_transactions(self) -> bool:
        return "transactions" in vars(self)

    @property
    def has_sharing(self) -> bool:
        return "sharing" in vars(self)

    def groups_with_offsets(self) -> "GroupCoordinators | None":
        """None while nothing was ever committed here."""
        return self.groups if self.has_groups and self.groups.has_topic else None

    def start(self) -> None:
        topics = self._node.image.topics
        if self.has_groups or OFFSETS_TOPIC in topics:
            self.groups.start()
        if self.has_transactions or TRANSACTIONS_TOPIC in topics:
            self.transactions.start()
        if self.has_sharing or SHARE_STATE_TOPIC in topics:
            self.sharing.start()
        self._is_serving = True

    async def stop(self) -> None:
        # If a client asks for its first group from here on, it gets a coordinator that needs no
        # stop.
        self._is_serving = False
        if self.has_sharing:
            await self.sharing.stop()
        if self.has_transactions:
            await self.transactions.stop()
        if self.has_groups:
            await self.groups.stop()

    async def ensure_internal_topic(self, name: str) -> None:
        """Raises KafkaError while the topic cannot be created."""
        if name == SHARE_STATE_TOPIC:
            await self.sharing.coordinator.ensure_topic()
        else:
            await (self.groups if name == OFFSETS_TOPIC else self.transactions).ensure_topic()

    def topic_deleted(self, topic: TopicState) -> None:
        if self.has_groups:
            self.groups.topic_is_gone(topic)
        if self.has_sharing:
            self.sharing.topic_deleted(topic)
