"""The throttle of moves: options of topics and nodes, as Kafka's own tool sets them.

A topic lists its throttled replicas, and a node has the rates. The lists are written first and
deleted last: a command that was killed leaves them, and the next one sees that nothing uses them
any more. Moves that somebody else has in progress keep their throttle.

A list that is too long for an option is Kafka's `*`: all replicas of the topic. As somebody may
have set that on purpose, only the command that moved replicas of the topic deletes it.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from millstream.cli.cluster_view import BROKER, TOPIC, ClusterView, change_options, view_of
from millstream.cli.connection import Cluster
from millstream.client.blocking import Address
from millstream.cluster.rebalancing import Move, Replicas
from millstream.model import TopicPartition
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.cursor import STRING_BYTES_MAX

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LISTS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
_ALL: Final = "*"


def set_throttle(cluster: Cluster, moves: Sequence[Move], bytes_per_second: int) -> None:
    view = view_of(cluster)
    # One that was deleted since the plan was made has no options.
    existing = {where.topic for where in view.partitions}
    lists = throttled_replicas(view, moves)
    for topic, (leaders, followers) in sorted(lists.items()):
        if topic not in existing:
            continue
        values = dict(zip(_LISTS, (leaders, followers), strict=True))
        change_options(cluster, TOPIC, topic, values)
    copying = [move for move in moves if move.added]
    wanted = {node for move in copying for node in (*move.before, *move.added)}
    for node in cluster.live_nodes():
        if node.broker_id in wanted:
            address = Address(node.host, node.port)
            rates = dict.fromkeys(_RATES, str(bytes_per_second))
            change_options(cluster, BROKER, str(node.broker_id), rates, node=address)


def throttled_replicas(view: ClusterView, moves: Iterable[Move]) -> dict[str, tuple[str, str]]:
    """By topic, the replicas that send and those that receive. With those of other moves in
    progress: a topic has only one list."""
    copying = _copying(moves)
    topics = {where.topic for where in copying}
    for one in view.partitions.values():
        if one.adding and one.where.topic in topics:
            copying.setdefault(one.where, (one.before, one.adding))
    return _lists(copying)


def topics_throttled_whole(moves: Iterable[Move]) -> list[str]:
    """The topics that have more moves than an option can list."""
    return [topic for topic, lists in sorted(_lists(_copying(moves)).items()) if _ALL in lists]


def _copying(moves: Iterable[Move]) -> dict[TopicPartition, tuple[Replicas, Replicas]]:
    """The nodes that have each partition, and those that it is copied to."""
    return {move.where: (move.before, move.added) for move in moves if move.added}


def _lists(
    copying: Mapping[TopicPartition, tuple[Replicas, Replicas]],
) -> dict[str, tuple[str, str]]:
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for where, (before, added) in copying.items():
        leaders.setdefault(where.topic, []).append(_places(before, where.partition))
        followers.setdefault(where.topic, []).append(_places(added, where.partition))
    return {topic: (_list(leaders[topic]), _list(followers[topic])) for topic in leaders}


def _list(places: Iterable[str]) -> str:
    text = ",".join(places)
    return text if len(text) <= STRING_BYTES_MAX else _ALL


def _places(nodes: Iterable[int], partition: int) -> str:
    return ",".join(f"{partition}:{node}" for node in nodes)


def remove_unused_throttle(cluster: Cluster, *, moves: Iterable[Move] = ()) -> list[str]:
    """Remove what no move in progress uses, also what a killed command has left. Returns the
    topics that had it. If it was set for `moves`, the rates go even if no topic has a list any
    more."""
    view = view_of(cluster)
    moved = {where.topic for where in _copying(moves)}
    unused = unused_lists(view, throttled_topics(cluster, view, moved))
    is_moving = any(one.is_moving for one in view.partitions.values())
    if (unused or moved) and not is_moving:
        for node in view.nodes.values():
            address = Address(node.host, node.port)
            rates = dict.fromkeys(_RATES)
            change_options(cluster, BROKER, str(node.broker_id), rates, node=address)
    for topic in unused:
        change_options(cluster, TOPIC, topic, dict.fromkeys(_LISTS))
    return unused


def unused_lists(view: ClusterView, throttled: Iterable[str]) -> list[str]:
    """The topics that are throttled though none of their partitions is moving."""
    moving = {one.where.topic for one in view.partitions.values() if one.is_moving}
    return [topic for topic in throttled if topic not in moving]


def throttled_topics(cluster: Cluster, view: ClusterView, moved: Container[str] = ()) -> list[str]:
    """The topics that list throttled replicas; of `moved` also those that name all of them."""
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=list(_LISTS)
        )
        for name in sorted({where.topic for where in view.partitions})
    ]
    if not resources:
        return []
    answer = cluster.ask(cluster.first, DescribeConfigsRequest(resources=resources))
    return [
        one.resource_name
        for one in answer.results
        if any(
            config.value and (config.value != _ALL or one.resource_name in moved)
            for config in one.configs
        )
    ]
