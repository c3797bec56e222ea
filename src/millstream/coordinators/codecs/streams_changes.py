"""The records of streams groups (KIP-1071) in `__consumer_offsets`, as values.

`value` is None for a tombstone. A task is a subtopology and a partition; its number of
partitions is the largest among the subtopology's source topics.
"""

from dataclasses import field
from enum import IntEnum

from millstream.lazy_dataclass import dataclass

# Partitions by subtopology; sorted and without empty entries, so that equal tasks are equal values.
Tasks = dict[str, tuple[int, ...]]
# The epoch in which each active task was assigned, by subtopology and partition.
TaskEpochs = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """What a member should own, or says that it owns."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    """What a member owns, as the coordinator knows it."""

    active: TaskEpochs = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@dataclass(slots=True)
class StoredStreamsGroup:
    epoch: int
    metadata_hash: int = 0
    # The topology's epoch once all its topics are right; -1 before.
    validated_topology_epoch: int = -1
    # The settings that the target was computed with.
    assignment_configs: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StreamsGroupChange:
    group_id: str
    value: StoredStreamsGroup | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a member answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StoredStreamsMember:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    # Threads of one process are members of their own, but share its state directory.
    process_id: str
    endpoint: Endpoint | None
    # Sorted.
    client_tags: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class StreamsMemberChange:
    group_id: str
    member_id: str
    value: StoredStreamsMember | None


@dataclass(slots=True)
class StoredStreamsTarget:
    epoch: int
    timestamp_ms: int = 0


@dataclass(slots=True)
class StreamsTargetChange:
    group_id: str
    value: StoredStreamsTarget | None


@dataclass(slots=True)
class StreamsTargetMemberChange:
    group_id: str
    member_id: str
    value: TaskAssignment | None


class StreamsMemberState(IntEnum):
    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class CurrentTasks:
    epoch: int
    previous_epoch: int
    state: StreamsMemberState
    assigned: OwnedTasks
    revoking: OwnedTasks


@dataclass(slots=True)
class StreamsCurrentMemberChange:
    group_id: str
    member_id: str
    value: CurrentTasks | None


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic. 0 partitions: derived; 0 replicas: the node's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics that need the same number of partitions: positions in the subtopology's lists."""

    source_topics: tuple[int, ...]
    source_topic_patterns: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Subtopology:
    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_patterns: tuple[str, ...]
    changelog_topics: tuple[InternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    epoch: int
    subtopologies: tuple[Subtopology, ...]


@dataclass(slots=True)
class TopologyChange:
    group_id: str
    value: Topology | None


StreamsChange = (
    StreamsGroupChange
    | StreamsMemberChange
    | StreamsTargetChange
    | StreamsTargetMemberChange
    | StreamsCurrentMemberChange
    | TopologyChange
)
