"""Replication throttles of this node: as a leader that sends, as a follower that receives.

Kafka's options: a rate per node and, per topic, the replicas it applies to. In-sync
replicas are not throttled.
"""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.config.option import LONG_MAX
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.throttle import Throttle, is_throttled

_RATES: Final = {
    "leader": "leader.replication.throttled.rate",
    "follower": "follower.replication.throttled.rate",
}
_REPLICAS: Final = {
    "leader": "leader.replication.throttled.replicas",
    "follower": "follower.replication.throttled.replicas",
}


class Throttles:
    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._sending = Throttle()
        self._receiving = Throttle()

    def holds_back_sending(self, partition: ReplicatedPartition, replica_id: int) -> bool:
        leadership = partition.leadership
        if leadership is None or replica_id in leadership.isr:
            return False
        return self._is_over("leader", partition, replica_id, self._sending)

    def sent(self, partition: ReplicatedPartition, replica_id: int, size_bytes: int) -> None:
        leadership = partition.leadership
        if leadership is not None and replica_id not in leadership.isr:
            self._spend("leader", partition, replica_id, self._sending, size_bytes)

    def holds_back_receiving(self, partition: ReplicatedPartition) -> bool:
        me = self._node.node_id
        if me in partition.role.isr:
            return False
        return self._is_over("follower", partition, me, self._receiving)

    def received(self, partition: ReplicatedPartition, size_bytes: int) -> None:
        me = self._node.node_id
        if me not in partition.role.isr:
            self._spend("follower", partition, me, self._receiving, size_bytes)

    def _is_over(
        self, side: str, partition: ReplicatedPartition, broker_id: int, throttle: Throttle
    ) -> bool:
        rate = self._node.config.int(_RATES[side])
        if rate >= LONG_MAX or not self._concerns(side, partition, broker_id):
            return False
        return throttle.is_over(rate, self._node.clock.monotonic())

    def _spend(
        self,
        side: str,
        partition: ReplicatedPartition,
        broker_id: int,
        throttle: Throttle,
        size_bytes: int,
    ) -> None:
        if self._node.config.int(_RATES[side]) < LONG_MAX and self._concerns(
            side, partition, broker_id
        ):
            throttle.spend(size_bytes)

    def _concerns(self, side: str, partition: ReplicatedPartition, broker_id: int) -> bool:
        where = partition.topic_partition
        topic = self._node.image.topics.get(where.topic)
        named = "" if topic is None else topic.overrides.get(_REPLICAS[side], "")
        return bool(named) and is_throttled(named, where.partition, broker_id)
