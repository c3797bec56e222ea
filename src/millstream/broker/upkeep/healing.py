"""A damaged replica is given up and fetched again from the node that leads.

In this order: the replica tells nobody any more how far its log goes; the cluster's state
takes it out of the in-sync replicas and out of the lead, in a new leader epoch, so that
nothing it fetched before counts; its files go; an empty log follows like that of a new
replica. Where nobody else can lead nothing is touched, and a person has to act.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from millstream.cluster.leaders import Leaders
from millstream.errors import KafkaError
from millstream.model import TopicPartition
from millstream.replication.replicated import ReplicatedPartition

if TYPE_CHECKING:
    from millstream.broker.broker import Broker
    from millstream.broker.membership.replicas import Replicas

log = logging.getLogger(__name__)

# What could not be opened at the start is tried again, until another node leads it.
_RETRY_SECONDS: Final = 5.0


class Healing:
    def __init__(self, broker: "Broker", replicas: "Replicas", leaders: Leaders) -> None:
        self._broker = broker
        self._replicas = replicas
        self._leaders = leaders
        # What a person was told last of each that cannot be healed.
        self._told: dict[TopicPartition, str] = {}

    async def heal(self, partition: ReplicatedPartition, damage: str) -> bool:
        """False where nothing could be done."""
        where = partition.topic_partition
        self._replicas.silence(partition)
        try:
            await self._leaders.give_up(where, self._broker.node_id)
        except KafkaError as error:
            self._replicas.speak_again(partition)
            self._tell(where, f"is damaged and not fetched again, {error}: {damage}")
            return False
        if self._broker.partitions.find(where.topic, where.partition) is not partition:
            return True
        self._replicas.renew(partition)
        self._tell(where, f"is damaged and fetched again from {self._leader(where)}: {damage}")
        return True

    async def heal_offline(self) -> None:
        """What was too damaged to be opened at the start. Runs until all is done."""
        while mine := [where for where in self._broker.store.offline if self._is_mine(where)]:
            for where in mine:
                await self._heal_offline_one(where)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _heal_offline_one(self, where: TopicPartition) -> None:
        try:
            await self._leaders.give_up(where, self._broker.node_id)
        except KafkaError as error:
            self._tell(where, f"is offline and not fetched again, {error}")
            return
        if where in self._broker.store.offline and self._is_mine(where):
            self._replicas.open_anew(where)
            self._tell(where, f"was offline and is fetched again from {self._leader(where)}")

    def _is_mine(self, where: TopicPartition) -> bool:
        return self._replicas.has_here(where)

    def _leader(self, where: TopicPartition) -> str:
        state = self._broker.image.partition(where.topic, where.partition)
        return "nobody" if state is None else f"node {state.leader}"

    def _tell(self, where: TopicPartition, text: str) -> None:
        if self._told.get(where) != text:
            self._told[where] = text
            log.error("%s %s", where, text)
