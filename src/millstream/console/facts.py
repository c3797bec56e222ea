"""What the console knows of a cluster, as plain values: what pages show and what is sampled."""

from dataclasses import dataclass, field

from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class NodeFacts:
    node_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    # -1 where the node does not say.
    disk_total_bytes: int = -1
    disk_usable_bytes: int = -1
    leader_count: int = 0
    replica_count: int = 0


@dataclass(slots=True)
class PartitionFacts:
    """Offsets are -1 while no leader answers."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    start_offset: int = -1
    end_offset: int = -1
    # Of the leader's replica, or of the largest.
    size_bytes: int = 0

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def records(self) -> int:
        """At most this many: compaction leaves gaps."""
        return max(self.end_offset - self.start_offset, 0)


@dataclass(slots=True)
class TopicFacts:
    name: str
    is_internal: bool
    partitions: list[PartitionFacts]

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.partitions)

    @property
    def replication_factor(self) -> int:
        return max((len(one.replicas) for one in self.partitions), default=0)


@dataclass(slots=True)
class GroupFacts:
    group_id: str
    state: str
    # "classic" or "consumer"; empty where the cluster does not say.
    kind: str
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    # Since when the console has seen the same commits.
    unmoved_since_ms: int = 0
    # Its offsets were not asked for: there are more groups than one sample reads.
    is_unread: bool = False


@dataclass(slots=True)
class ClusterFacts:
    """Everything of one sample."""

    taken_at_ms: int
    cluster_id: str
    controller_id: int
    nodes: list[NodeFacts]
    topics: dict[str, TopicFacts]
    groups: dict[str, GroupFacts] = field(default_factory=dict)
    # What could not be read, in words.
    failures: list[str] = field(default_factory=list)

    def end_offset(self, where: TopicPartition) -> int:
        """-1 if it is not known."""
        topic = self.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            return -1
        return topic.partitions[where.partition].end_offset

    def lag(self, where: TopicPartition, committed: int) -> int | None:
        """Records after a commit; None if the end is not known."""
        end = self.end_offset(where)
        return None if end < 0 else max(end - committed, 0)

    def group_lag(self, group: GroupFacts) -> int:
        return sum(self.lag(where, offset) or 0 for where, offset in group.committed.items())
