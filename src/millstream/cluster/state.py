"""What the cluster is, as plain data: nodes, topics, partitions.

The controller alone changes an image; everybody else reads it.
"""

from dataclasses import dataclass, field

from millstream.model import INTERNAL_TOPICS, TopicId


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients of one listener reach a node."""

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerState:
    id: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(slots=True)
class PartitionState:
    """`version` is that of the node in the coordination store: the partition epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    version: int


@dataclass(slots=True)
class TopicState:
    name: str
    topic_id: TopicId
    partitions: list[PartitionState]
    overrides: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(slots=True)
class ClusterImage:
    cluster_id: str = ""
    controller_id: int = -1
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    topics_by_id: dict[TopicId, TopicState] = field(default_factory=dict)
    # Settings made at run time: by node id, and for all nodes under None.
    broker_overrides: dict[int | None, dict[str, str]] = field(default_factory=dict)
    # Settings of single groups, by group id; a group need not exist to have some.
    group_overrides: dict[str, dict[str, str]] = field(default_factory=dict)

    def add_topic(self, topic: TopicState) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic

    def remove_topic(self, name: str) -> TopicState:
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.topic_id]
        return topic

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """None where there is no such topic or partition."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]
