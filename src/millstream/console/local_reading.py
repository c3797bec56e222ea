"""The facts of a cluster from the state of the node in this process.

Over the protocol ten thousand partitions would be megabytes to encode and decode on the node's own
loop, every five seconds. Here they are read in place, some hundred at a time, so that clients
never wait for the console. Other nodes are still asked over the protocol.
"""

import asyncio
import os
from typing import Final

from millstream.broker.broker import Broker
from millstream.cluster.state import TopicState
from millstream.console.facts import ClusterFacts, NodeFacts, PartitionFacts, TopicFacts

# About a millisecond of work.
_PARTITIONS_PER_TURN: Final = 500


class LocalReader:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def node_id(self) -> int:
        return self._broker.node.node_id

    @property
    def may_read(self) -> bool:
        """Where permissions are checked, the console sees what its user sees, not more."""
        return self._broker.services.permissions.authorizer is None

    async def read(self, now_ms: int) -> ClusterFacts:
        """Everything but the offsets of partitions that other nodes lead, and their disks."""
        node = self._broker.node
        topics: dict[str, TopicFacts] = {}
        leads: dict[int, int] = {}
        holds: dict[int, int] = {}
        count = 0
        for topic in list(node.image.topics.values()):
            topics[topic.name] = found = self._topic(topic)
            for one in found.partitions:
                leads[one.leader] = leads.get(one.leader, 0) + 1
                for replica in one.replicas:
                    holds[replica] = holds.get(replica, 0) + 1
            count += len(found.partitions)
            if count >= _PARTITIONS_PER_TURN:
                count = 0
                await asyncio.sleep(0)
        controller_id = node.cluster.controller_id
        total, usable = self._disk()
        nodes = [
            NodeFacts(
                one.node_id,
                one.host,
                one.port,
                one.rack,
                one.node_id == controller_id,
                total if one.node_id == node.node_id else -1,
                usable if one.node_id == node.node_id else -1,
                leads.get(one.node_id, 0),
                holds.get(one.node_id, 0),
            )
            for one in node.cluster.brokers(self._broker.endpoints[0].name)
        ]
        nodes.sort(key=lambda one: one.node_id)
        return ClusterFacts(now_ms, node.image.cluster_id, controller_id, nodes, topics)

    def _topic(self, topic: TopicState) -> TopicFacts:
        node = self._broker.node
        own = node.partitions.of_topic(topic.name)
        partitions = []
        for index, state in enumerate(topic.partitions):
            leader = node.cluster.reachable_leader(topic, index)
            row = PartitionFacts(
                index, leader, state.leader_epoch, list(state.replicas), list(state.isr)
            )
            partition = own.get(index)
            if partition is not None:
                row.size_bytes = partition.log.segments.size_bytes
                if leader == node.node_id:
                    row.start_offset = partition.log.log_start_offset
                    row.end_offset = partition.log.high_watermark
            partitions.append(row)
        return TopicFacts(topic.name, topic.is_internal, partitions)

    def _disk(self) -> tuple[int, int]:
        """Size and free space; unknown for a disk that failed."""
        try:
            stat = os.statvfs(self._broker.node.disk.path)
        except OSError:
            return -1, -1
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
