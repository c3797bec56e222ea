"""A damaged replica is given up and fetched again from the node that leads.

In this order: the replica tells nobody any more how far its log goes; the cluster's state
takes it out of the in-sync replicas and out of the lead, in a new leader epoch, so that
nothing it fetched before counts; its files go; an empty log follows like that of a new
replica. Where nobody else can lead nothing is touched, and a person has to act.
"""

import asyncio
import logging
from typing import Final

from millstream.broker.membership.roles import Roles
from millstream.broker.node.state import NodeState
from millstream.cluster.elections import Elections
from millstream.errors import KafkaError, LogDirFailed
from millstream.model import TopicPartition
from millstream.replication.replicated import ReplicatedPartition

log = logging.getLogger(__name__)

# What could not be opened at the start is tried again, until another node leads it.
_RETRY_SECONDS: Final = 5.0


class Healing:
    def __init__(self, node: NodeState, roles: Roles, leaders: Elections) -> None:
        self._node = node
        self._roles = roles
        self._leaders = leaders
        # What a person was told last of each that cannot be healed.
        self._told: dict[TopicPartition, str] = {}

    async def heal(self, partition: ReplicatedPartition, damage: str) -> bool:
        """False where nothing could be done."""
        where = partition.topic_partition
        self._roles.silence(partition)
        try:
            await self._leaders.give_up(where, self._node.node_id)
        except KafkaError as error:
            self._roles.speak_again(partition)
            self._tell(where, f"is damaged and not fetched again, {error}: {damage}")
            return False
        if self._node.partitions.find(where.topic, where.partition) is not partition:
            return True
        self._roles.replace_log(partition)
        self._tell(where, f"is damaged and fetched again from {self._leader(where)}: {damage}")
        return True

    async def heal_offline(self) -> None:
        """What was too damaged to be opened at the start. Runs until all is done."""
        while mine := [where for where in self._node.disk.store.offline if self._is_mine(where)]:
            for where in mine:
                await self._heal_offline_one(where)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _heal_offline_one(self, where: TopicPartition) -> None:
        try:
            await self._leaders.give_up(where, self._node.node_id)
        except KafkaError as error:
            self._tell(where, f"is offline and not fetched again, {error}")
            return
        if where in self._node.disk.store.offline and self._is_mine(where):
            self._open_empty(where)
            self._tell(where, f"was offline and is fetched again from {self._leader(where)}")

    def _is_mine(self, where: TopicPartition) -> bool:
        state = self._node.image.partition(where.topic, where.partition)
        return state is not None and self._node.cluster.hosts(state)

    def _open_empty(self, where: TopicPartition) -> None:
        """An empty log takes the place of one that could not be opened at all."""
        try:
            self._node.disk.store.delete(where)
        except LogDirFailed as error:
            self._node.disk.fail(str(error))
        self._roles.open_topic(where.topic)

    def _leader(self, where: TopicPartition) -> str:
        state = self._node.image.partition(where.topic, where.partition)
        return "nobody" if state is None else f"node {state.leader}"

    def _tell(self, where: TopicPartition, text: str) -> None:
        if self._told.get(where) != text:
            self._told[where] = text
            log.error("%s %s", where, text)
