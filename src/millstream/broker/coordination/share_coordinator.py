"""The share coordinator of this node: its shards of `__share_group_state`.

Wiring only. `coordinators/share/stored.py` decides. Here the topic is created, and shortened
from its start: it cannot be compacted, because an update does not replace the one before.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from millstream.broker.coordination.shards import Shards
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.changes import NewTopic
from millstream.coordinators.codecs.share_state import ShareChange, ShareKey, StoredShare
from millstream.coordinators.decision import DecisionOf, Ticket
from millstream.coordinators.journal import ShardStatus
from millstream.coordinators.share import stored
from millstream.coordinators.share.stored import (
    SHARE_STATES,
    ShareStateDecision,
    ShareStateEnv,
    ShareStates,
    ShareStateShard,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.model import SHARE_STATE_TOPIC

log = logging.getLogger(__name__)

ShareStateDecide = Callable[[ShareStates, ShareStateEnv], ShareStateDecision]


class ShareCoordinator:
    def __init__(self, node: NodeState, topics: Topics) -> None:
        self._node = node
        self.shards = Shards(node, topics, SHARE_STATE_TOPIC, self._topic, SHARE_STATES, self._env)
        # By shard number: where the log ended when it was last shortened.
        self._pruned_to: dict[int, int] = {}

    def start(self) -> None:
        self.shards.start()
        self.shards.spawn(self._prune())

    async def stop(self) -> None:
        await self.shards.stop()

    async def ensure_topic(self) -> None:
        """Create the topic when the first share group needs it."""
        await self.shards.ensure_topic()

    @property
    def has_topic(self) -> bool:
        return self.shards.has_topic

    def _topic(self) -> NewTopic:
        config = self._node.config
        replicas = config.int("share.coordinator.state.topic.replication.factor")
        replicas = self._node.cluster.internal_replicas(replicas)
        in_sync_min = min(config.int("share.coordinator.state.topic.min.isr"), replicas)
        return NewTopic(
            SHARE_STATE_TOPIC,
            config.int("share.coordinator.state.topic.num.partitions"),
            replicas,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(in_sync_min),
                "retention.ms": "-1",
                "segment.bytes": str(config.int("share.coordinator.state.topic.segment.bytes")),
            },
        )

    def _env(self, ticket: Ticket) -> ShareStateEnv:
        node = self._node
        option = "share.coordinator.snapshot.update.records.per.snapshot"
        return ShareStateEnv(node.clock.now_ms(), node.image, node.config.int(option), ticket)

    # -- requests ---------------------------------------------------------------------

    def is_here(self, key: ShareKey) -> bool:
        """Does this node keep the state of a share partition?"""
        return self.has_topic and self.shards.other_leader_of(key.name) is None

    def submit(
        self, key: ShareKey, decide: ShareStateDecide
    ) -> "StoredShare | asyncio.Future[StoredShare]":
        """The reply, or a future of it. Raises KafkaError if the answer is an error."""
        return self.shards.submit(key.name, decide)

    def topic_is_gone(self, topic_id: UUID) -> None:
        """Forget the share partitions of a deleted topic."""
        for shard in self.shards.all:
            if shard.status is not ShardStatus.ACTIVE:
                continue
            for record in stored.tombstones(shard.state, topic_id):
                decision = ShareStateDecision(records=[record])
                _write(shard, record.key.name, decision)

    # -- time -------------------------------------------------------------------------

    async def _prune(self) -> None:
        option = "share.coordinator.state.topic.prune.interval.ms"
        while True:
            await asyncio.sleep(self._node.config.int(option) / 1000)
            for number in range(len(self.shards.all)):
                await self._prune_shard(number)

    async def _prune_shard(self, number: int) -> None:
        """Write everything again, and delete what is before."""
        shard = self.shards.all[number]
        partition = self._node.partitions.find(SHARE_STATE_TOPIC, number)
        if shard.status is not ShardStatus.ACTIVE or partition is None:
            return
        end = partition.log.next_offset
        if end == self._pruned_to.get(number, 0):
            return
        records = stored.snapshots(shard.state, self._env(Ticket()))
        snapshots: DecisionOf[KafkaCode, ShareChange, ShareStateEnv]
        snapshots = DecisionOf(KafkaCode.NONE, records)
        try:
            # If they cannot be written this raises, and nothing is deleted.
            answer = shard.submit(shard.name, lambda states, env: snapshots)
            written_to = partition.log.next_offset
            if isinstance(answer, asyncio.Future):
                await answer
            wait = shard.wait_all()
            if wait is not None:
                await wait
            is_active = shard.status is ShardStatus.ACTIVE
            if self.shards.all[number] is shard and is_active and partition.is_leader:
                partition.log.delete_records_before(end)
                self._pruned_to[number] = written_to
        except KafkaError as error:
            log.warning("%s is not shortened: %s", shard.name, error)


def _write(shard: ShareStateShard, name: str, decision: ShareStateDecision) -> None:
    shard.submit_internal(name, lambda states, env: decision)  # type: ignore[arg-type, return-value]  # nobody waits for the reply
