"""Which leaderships return to the preferred replicas. Pure.

The preferred replica of a partition is the first of its assignment. After a node was away, others
lead its partitions. They return when too many of them are led by others, as in Kafka: the share
is compared per node, so that one partition here and there moves no clients.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from millstream.cluster import election
from millstream.cluster.election import Nodes
from millstream.cluster.state import PartitionState, TopicState
from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderBalance:
    """When leaders are compared, and how many percent of a node's may be elsewhere."""

    is_enabled: bool
    check_seconds: float
    percentage_max: int


@dataclass(frozen=True, slots=True)
class Return:
    where: TopicPartition
    before: PartitionState
    after: PartitionState


def returns(topics: Iterable[TopicState], nodes: Nodes, *, percentage_max: int) -> list[Return]:
    """The partitions whose preferred replica should lead again, and can."""
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    possible: list[Return] = []
    for topic in topics:
        for number, state in enumerate(topic.partitions):
            first = election.target_replicas(state)[0]
            preferred[first] += 1
            if state.leader == first:
                continue
            elsewhere[first] += 1
            # A reassignment that ends may elect another leader anyway.
            if state.adding or state.removing:
                continue
            after = election.preferred(state, nodes)
            if after is not None:
                possible.append(Return(TopicPartition(topic.name, number), state, after))
    unbalanced = {
        node for node, count in elsewhere.items() if count * 100 > preferred[node] * percentage_max
    }
    return [one for one in possible if one.after.leader in unbalanced]
