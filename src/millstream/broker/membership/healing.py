"""Gives up a damaged replica and fetches it again from the leader.

In this order: the replica stops reporting the end of its log; the cluster's state takes it
out of the in-sync replicas and the leadership, in a new leader epoch, so that nothing it
fetched before counts; its files are deleted; an empty log follows like that of a new
replica. If no other replica can lead, nothing changes, and a person has to act.
"""

import asyncio
import logging
from typing import Final

from millstream.broker.membership.roles import Roles
from millstream.broker.node.state import NodeState
from millstream.cluster.requested_elections import Elections
from millstream.errors import KafkaError, LogDirFailed
from millstream.model import TopicPartition
from millstream.replication.replicated import ReplicatedPartition

log = logging.getLogger(__name__)

# Replicas that could not be opened at the start are retried until another node leads them.
_RETRY_SECONDS: Final = 5.0


class Healing:
    def __init__(self, node: NodeState, roles: Roles, leaders: Elections) -> None:
        self._node = node
        self._roles = roles
        self._leaders = leaders
        # The last problem logged for each replica that cannot be healed.
        self._logged: dict[TopicPartition, str] = {}

    async def heal(self, partition: ReplicatedPartition, damage: str) -> bool:
        """False if nothing could be done."""
        where = partition.topic_partition
        self._roles.silence(partition)
        try:
            await self._leaders.give_up(where, self._node.node_id)
        except KafkaError as error:
            self._roles.speak_again(partition)
            self._log_once(where, f"is damaged and not fetched again, {error}: {damage}")
            return False
        if self._node.partitions.find(where.topic, where.partition) is not partition:
            return True
        self._roles.replace_log(partition)
        self._log_once(where, f"is damaged and fetched again from {self._leader(where)}: {damage}")
        return True

    async def heal_offline(self) -> None:
        """Heal what was too damaged to be opened at the start. Runs until all is done."""
        while mine := [where for where in self._node.disk.store.offline if self._is_mine(where)]:
            for where in mine:
                await self._heal_offline_one(where)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _heal_offline_one(self, where: TopicPartition) -> None:
        try:
            await self._leaders.give_up(where, self._node.node_id)
        except KafkaError as error:
            self._log_once(where, f"is offline and not fetched again, {error}")
            return
        if where in self._node.disk.store.offline and self._is_mine(where):
            self._open_empty(where)
            self._log_once(where, f"was offline and is fetched again from {self._leader(where)}")

    def _is_mine(self, where: TopicPartition) -> bool:
        state = self._node.image.partition(where.topic, where.partition)
        return state is not None and self._node.cluster.hosts(state)

    def _open_empty(self, where: TopicPartition) -> None:
        """Put an empty log in the place of one that could not be opened."""
        try:
            self._node.disk.store.delete(where)
        except LogDirFailed as error:
            self._node.disk.fail(str(error))
        self._roles.open_topic(where.topic)

    def _leader(self, where: TopicPartition) -> str:
        state = self._node.image.partition(where.topic, where.partition)
        return "no node" if state is None else f"node {state.leader}"

    def _log_once(self, where: TopicPartition, text: str) -> None:
        if self._logged.get(where) != text:
            self._logged[where] = text
            log.error("%s %s", where, text)
