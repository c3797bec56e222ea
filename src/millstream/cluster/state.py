"""The cluster as plain data: nodes, topics, partitions.

Only the observer changes an image (on a standalone node, the publisher); other code reads it.
"""

from dataclasses import field
from enum import Enum
from typing import Final

from millstream.cluster.acls import StoredAcls
from millstream.cluster.client_entities import ClientEntities
from millstream.cluster.delegation_tokens import DelegationTokens
from millstream.cluster.level import HIGHEST
from millstream.lazy_dataclass import dataclass
from millstream.model import INTERNAL_TOPICS, TopicId, TopicPartition


class NamedResource(Enum):
    """What has options under a name of any characters, and need not exist to have some. The value
    is its folder in the coordination store."""

    GROUP = "groups"
    CLIENT_METRICS = "client-metrics"


NO_LEADER: Final = -1
NO_BROKER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a node for clients of one listener."""

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of one replica's log, in the leader epoch in which the partition lost its leader."""

    where: TopicPartition
    leader_epoch: int
    last_epoch: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class BrokerState:
    """`epoch` numbers the starts of a node in a cluster. A stopping one gets no new leaderships."""

    id: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    epoch: int = NO_BROKER_EPOCH
    is_stopping: bool = False
    # The ends of its logs, for partitions that get a leader only by comparing logs.
    log_ends: tuple[LogEnd, ...] = ()
    # The highest level that it knows.
    level: int = HIGHEST

    def log_end(self, where: TopicPartition, leader_epoch: int) -> LogEnd | None:
        """None if it has not reported the end, or only for an earlier epoch."""
        for end in self.log_ends:
            if end.where == where and end.leader_epoch == leader_epoch:
                return end
        return None

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(slots=True)
class PartitionState:
    """`version` is that of the partition's znode: the partition epoch.

    `elr` are replicas that left an ISR which was then too small to commit anything without
    them, so they have all that is committed and may lead. `last_known_elr` were such, and
    may since have lost data. `adding` and `removing` are replicas of a reassignment in
    progress. `writer_token` identifies the write: a writer whose response was lost finds its own.
    `unclean_epoch` is the leader epoch of the last unclean election, -1 if there was none: records
    of earlier epochs that the leader does not have may have been acknowledged.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    version: int
    min_isr: int = 1
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    writer_token: str = ""
    unclean_epoch: int = -1


@dataclass(slots=True)
class TopicState:
    name: str
    topic_id: TopicId
    partitions: list[PartitionState]
    overrides: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A node's latest start. `epoch` is the version of its znode in the coordination store."""

    epoch: int
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is moving to other replicas."""

    where: TopicPartition
    state: PartitionState


@dataclass(slots=True)
class ClusterImage:
    """`brokers` are those that are alive; `incarnations` all that ever were."""

    cluster_id: str = ""
    controller_id: int = -1
    controller_epoch: int = -1
    # The version of its znode; read before the controller's id, so it is never newer than that.
    controller_epoch_version: int = -1
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    incarnations: dict[int, Incarnation] = field(default_factory=dict)
    # The epoch up to which the controller has taken a node out of every ISR.
    handled: dict[int, int] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    topics_by_id: dict[TopicId, TopicState] = field(default_factory=dict)
    # Options set at run time: by node id, and for all nodes under None.
    broker_overrides: dict[int | None, dict[str, str]] = field(default_factory=dict)
    # Options of groups and of subscriptions to client metrics, by name. A member's observer
    # replaces the inner dictionaries; a standalone node changes them.
    named_overrides: dict[NamedResource, dict[str, dict[str, str]]] = field(
        default_factory=lambda: {kind: {} for kind in NamedResource}
    )
    # Quotas and credentials.
    client_entities: ClientEntities = field(default_factory=ClientEntities)
    delegation_tokens: DelegationTokens = field(default_factory=DelegationTokens)
    acls: StoredAcls = field(default_factory=StoredAcls)

    @property
    def group_overrides(self) -> dict[str, dict[str, str]]:
        """Options of single groups, by group id."""
        return self.named_overrides[NamedResource.GROUP]

    @property
    def client_metrics(self) -> dict[str, dict[str, str]]:
        """Options of subscriptions to client metrics, by name."""
        return self.named_overrides[NamedResource.CLIENT_METRICS]

    def add_topic(self, topic: TopicState) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic

    def remove_topic(self, name: str) -> TopicState:
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.topic_id]
        return topic

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """None if there is no such topic or partition."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]
