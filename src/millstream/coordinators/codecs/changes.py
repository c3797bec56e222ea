"""The records of `__consumer_offsets` as values: one class per kind of record.

`value` is None for a tombstone. The numbers of the kinds are Kafka's: a record's key begins
with the number, and is never flexible.
"""

from dataclasses import field
from enum import IntEnum
from uuid import UUID

from millstream.coordinators.codecs.streams_changes import StreamsChange
from millstream.lazy_dataclass import dataclass
from millstream.model import NO_TOPIC_ID

# Partitions by topic id; small and sorted, so that equal assignments are equal values.
Assignment = dict[UUID, tuple[int, ...]]


class RecordKind(IntEnum):
    LEGACY_OFFSET = 0
    OFFSET = 1
    GROUP = 2
    CONSUMER_GROUP = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    TARGET = 6
    TARGET_MEMBER = 7
    CURRENT_MEMBER = 8
    SHARE_MEMBER = 10
    SHARE_GROUP = 11
    SHARE_TARGET = 12
    SHARE_TARGET_MEMBER = 13
    SHARE_CURRENT_MEMBER = 14
    SHARE_PARTITIONS = 15
    PATTERN = 16
    STREAMS_GROUP = 17
    STREAMS_MEMBER = 19
    STREAMS_TARGET = 20
    STREAMS_TARGET_MEMBER = 21
    STREAMS_CURRENT_MEMBER = 22
    STREAMS_TOPOLOGY = 23


@dataclass(slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    # Only for clients that requested a retention time (OffsetCommit 2-4).
    expire_timestamp_ms: int = -1
    topic_id: UUID = NO_TOPIC_ID


@dataclass(slots=True)
class OffsetChange:
    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


@dataclass(slots=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True)
class StoredGroup:
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: list[StoredMember] = field(default_factory=list)


@dataclass(slots=True)
class GroupChange:
    group_id: str
    value: StoredGroup | None


@dataclass(slots=True)
class StoredConsumerGroup:
    epoch: int
    metadata_hash: int = 0


@dataclass(slots=True)
class ConsumerGroupChange:
    group_id: str
    value: StoredConsumerGroup | None


@dataclass(slots=True)
class PartitionMetadataChange:
    """Written by Kafka 3.7 to 4.0 only. We ignore its value and write its tombstone."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """The classic protocol's data of a member in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class StoredConsumerMember:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicProtocols | None = None


@dataclass(slots=True)
class MemberChange:
    group_id: str
    member_id: str
    value: StoredConsumerMember | None


@dataclass(slots=True)
class StoredTarget:
    epoch: int
    timestamp_ms: int = 0


@dataclass(slots=True)
class TargetChange:
    group_id: str
    value: StoredTarget | None


@dataclass(slots=True)
class TargetMemberChange:
    group_id: str
    member_id: str
    value: Assignment | None


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    revoking: Assignment


@dataclass(slots=True)
class CurrentMemberChange:
    group_id: str
    member_id: str
    value: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class MatchedTopics:
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(slots=True)
class PatternChange:
    group_id: str
    pattern: str
    value: MatchedTopics | None


# -- share groups (KIP-932) -------------------------------------------------------------


@dataclass(slots=True)
class ShareGroupChange:
    group_id: str
    value: StoredConsumerGroup | None


@dataclass(frozen=True, slots=True)
class StoredShareMember:
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]


@dataclass(slots=True)
class ShareMemberChange:
    group_id: str
    member_id: str
    value: StoredShareMember | None


@dataclass(slots=True)
class ShareTargetChange:
    group_id: str
    value: StoredTarget | None


@dataclass(slots=True)
class ShareTargetMemberChange:
    group_id: str
    member_id: str
    value: Assignment | None


@dataclass(frozen=True, slots=True)
class ShareAssignment:
    """What a member has. Several members may have the same partition."""

    epoch: int
    previous_epoch: int
    assigned: Assignment


@dataclass(slots=True)
class ShareCurrentMemberChange:
    group_id: str
    member_id: str
    value: ShareAssignment | None


@dataclass(frozen=True, slots=True)
class SharedTopic:
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedTopics:
    """The share partitions of a group, by topic id: those that the share coordinator is asked to
    begin, those that it has begun, and those that it is asked to forget."""

    initializing: dict[UUID, SharedTopic] = field(default_factory=dict)
    initialized: dict[UUID, SharedTopic] = field(default_factory=dict)
    # Names.
    deleting: dict[UUID, str] = field(default_factory=dict)


@dataclass(slots=True)
class SharePartitionsChange:
    group_id: str
    value: SharedTopics | None


ShareGroupRecord = (
    ShareGroupChange
    | ShareMemberChange
    | ShareTargetChange
    | ShareTargetMemberChange
    | ShareCurrentMemberChange
    | SharePartitionsChange
)

Change = (
    OffsetChange
    | GroupChange
    | ConsumerGroupChange
    | PartitionMetadataChange
    | MemberChange
    | TargetChange
    | TargetMemberChange
    | CurrentMemberChange
    | PatternChange
    | ShareGroupRecord
    | StreamsChange
)
