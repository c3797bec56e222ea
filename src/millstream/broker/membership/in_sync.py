"""The in-sync replicas of the partitions that this node leads: checked in time, and written."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from millstream.broker.membership.nodes import Nodes
from millstream.broker.node.state import NodeState
from millstream.cluster.membership import Membership, Outdated
from millstream.model import TopicPartition
from millstream.replication.isr import IsrChange
from millstream.replication.isr_proposer import IsrProposer, NotWritten
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role

# How often the leader checks for slow followers, within the time they are allowed.
_LOOKS_PER_LAG: Final = 2


class InSyncReplicas:
    def __init__(self, node: NodeState, membership: Membership, nodes: Nodes) -> None:
        self._node = node
        self._membership = membership
        self._proposer = IsrProposer(
            self._write,
            alive=nodes.alive,
            has_lease=membership.lease.is_valid,
            lag_ms_max=lambda: node.config.int("replica.lag.time.max.ms"),
            clock=node.clock,
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look_at_all())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._proposer.stop()

    def fetched_by(self, partition: ReplicatedPartition, replica_id: int) -> None:
        """A follower that is out of sync may have caught up with this fetch."""
        leadership = partition.leadership
        if leadership is not None and replica_id not in leadership.isr:
            self._proposer.look_at(partition)

    async def _look_at_all(self) -> None:
        while True:
            lag_ms = self._node.config.int("replica.lag.time.max.ms")
            await asyncio.sleep(lag_ms / 1000 / _LOOKS_PER_LAG)
            for partition in list(replicated(self._node)):
                self._proposer.look_at(partition)

    async def _write(self, where: TopicPartition, change: IsrChange) -> Role:
        state = self._node.image.partition(where.topic, where.partition)
        if state is None or state.version != change.version:
            raise NotWritten("the image already has another state")
        joining: Mapping[int, int] = dict(change.joining)
        try:
            written = await self._membership.change_isr(where, state, change.isr, joining)
        except Outdated as error:
            raise NotWritten(str(error)) from error
        return Role.of(written)


def replicated(node: NodeState) -> Iterable[ReplicatedPartition]:
    for partition in node.partitions:
        if isinstance(partition, ReplicatedPartition):
            yield partition
