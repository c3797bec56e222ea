"""The partitions of this node, by topic name and by topic id."""

from collections.abc import Iterator
from typing import Protocol

from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, TopicId
from millstream.replication.admission import Generation
from millstream.replication.partition import Partition


class Elsewhere(Protocol):
    """Partitions that the cluster has and this node does not."""

    def has_partition(self, name: str, index: int) -> bool: ...
    def name_of(self, topic_id: TopicId) -> str | None: ...


class PartitionTable:
    def __init__(self) -> None:
        # Of everything that decides whether the node serves a request.
        self.generation = Generation()
        # In a cluster only.
        self.elsewhere: Elsewhere | None = None
        # Of which partitions there are: how often one came or went.
        self.changes = 0
        self._topics: dict[str, dict[int, Partition]] = {}
        self._names: dict[TopicId, str] = {}

    def add(self, partition: Partition) -> None:
        self.changes += 1
        where = partition.topic_partition
        self._topics.setdefault(where.topic, {})[where.partition] = partition
        if partition.topic_id != NO_TOPIC_ID:
            self._names[partition.topic_id] = where.topic

    def remove(self, partition: Partition) -> None:
        """One partition moves to other nodes; the topic stays known while it has others here."""
        self.changes += 1
        where = partition.topic_partition
        left = self._topics.get(where.topic, {})
        if left.get(where.partition) is partition:
            del left[where.partition]
        if not left:
            self.remove_topic(where.topic)
            self._names.pop(partition.topic_id, None)

    def remove_topic(self, name: str) -> list[Partition]:
        self.changes += 1
        removed = list(self._topics.pop(name, {}).values())
        for partition in removed:
            self._names.pop(partition.topic_id, None)
        return removed

    def get(self, name: str, index: int) -> Partition:
        try:
            return self._topics[name][index]
        except KeyError:
            if self.elsewhere is not None and self.elsewhere.has_partition(name, index):
                raise KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER) from None
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def find(self, name: str, index: int) -> Partition | None:
        return self._topics.get(name, {}).get(index)

    def name_of(self, topic_id: TopicId) -> str:
        try:
            return self._names[topic_id]
        except KeyError:
            name = None if self.elsewhere is None else self.elsewhere.name_of(topic_id)
            if name is None:
                raise KafkaError(KafkaCode.UNKNOWN_TOPIC_ID) from None
            return name

    def wake_fetches(self) -> None:
        """Ask fetches that wait again: the rules have changed."""
        for partition in self:
            partition.fetch_waits.wake()

    def of_topic(self, name: str) -> dict[int, Partition]:
        return self._topics.get(name, {})

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()
