"""Topics as the cluster describes them, without a client library: for commands that answer
quickly."""

import time
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.client.blocking import Address
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.apis.metadata import MetadataTopic

EARLIEST: Final = -2
LATEST: Final = -1
# Of DescribeConfigs.
_TOPIC_RESOURCE: Final = 2
_LIST_OFFSETS_VERSION: Final = 7
# Leadership moves, and a new topic's leader does not know of it yet.
_NOT_YET: Final = {
    KafkaCode.NOT_LEADER_OR_FOLLOWER,
    KafkaCode.LEADER_NOT_AVAILABLE,
    KafkaCode.OFFSET_NOT_AVAILABLE,
}
_RETRIES_MAX: Final = 40
_RETRY_SECONDS: Final = 0.05


def find_topic(cluster: Cluster, name: str) -> MetadataTopic:
    """Never creates it. Raises CommandFailed."""
    if not name:
        raise CommandFailed("the name of the topic is empty", exit_code=ExitCode.USAGE)
    [topic] = cluster.metadata(name).topics
    if topic.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise topic_missing(name)
    check(topic.error_code, f"topic {name}")
    return topic


def require_topic(bootstrap: str, name: str) -> None:
    """Raises CommandFailed unless a broker answers, and has the topic."""
    with Cluster(bootstrap) as cluster:
        find_topic(cluster, name)


def topic_missing(name: str) -> CommandFailed:
    return CommandFailed(
        f"topic {name} does not exist. `millstream topic list` shows the existing ones; "
        "`millstream topic create NAME` creates one"
    )


def topic_partitions(cluster: Cluster, name: str) -> list[int]:
    return sorted(one.partition_index for one in find_topic(cluster, name).partitions)


def topic_option(cluster: Cluster, topic: str, name: str) -> str:
    """The value in force."""
    resource = DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name]
    )
    [answer] = cluster.ask(cluster.first, DescribeConfigsRequest(resources=[resource])).results
    check(answer.error_code, f"topic {topic}", answer.error_message)
    return answer.configs[0].value or ""


def offsets_at(
    cluster: Cluster, places: Iterable[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """Offsets by time, EARLIEST or LATEST; -1 if an existing partition has no such record.

    Without partitions that have no leader, or were just deleted."""
    wanted = set(places)
    found: dict[TopicPartition, int] = {}
    for attempt in range(_RETRIES_MAX):
        later: set[TopicPartition] = set()
        for where, one in _ask_leaders(cluster, wanted, timestamp_ms):
            if one.error_code in _NOT_YET and attempt < _RETRIES_MAX - 1:
                later.add(where)
            elif one.error_code != KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(one.error_code, str(where))
                found[where] = one.offset
        if not later:
            break
        wanted = later
        time.sleep(_RETRY_SECONDS)
    return found


def _ask_leaders(
    cluster: Cluster, wanted: Collection[TopicPartition], timestamp_ms: int
) -> Iterator[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
    if not wanted:
        return
    metadata = cluster.metadata(*sorted({where.topic for where in wanted}))
    nodes = {one.node_id: Address(one.host, one.port) for one in metadata.brokers}
    by_node: dict[Address, dict[str, list[int]]] = {}
    for topic in metadata.topics:
        for part in topic.partitions:
            where = TopicPartition(topic.name or "", part.partition_index)
            if where in wanted and part.leader_id in nodes:
                asked = by_node.setdefault(nodes[part.leader_id], {})
                asked.setdefault(where.topic, []).append(where.partition)
    for node, topics in by_node.items():
        times = [_times(name, indexes, timestamp_ms) for name, indexes in topics.items()]
        request = ListOffsetsRequest(replica_id=-1, topics=times)
        for row in cluster.ask(node, request, _LIST_OFFSETS_VERSION).topics:
            for one in row.partitions:
                yield TopicPartition(row.name, one.partition_index), one


def _times(topic: str, indexes: list[int], timestamp_ms: int) -> ListOffsetsTopic:
    rows = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp_ms) for index in indexes
    ]
    return ListOffsetsTopic(name=topic, partitions=rows)
