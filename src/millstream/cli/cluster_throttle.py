"""The throttle of moves: options of topics and nodes, as Kafka's own tool sets them.

A topic lists its throttled replicas, and a node has the rates. The lists are written first and
deleted last: a command that was killed leaves them, and the next one sees that nothing uses them
any more. Moves that somebody else has in progress keep their throttle.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from millstream.cli.cluster_view import BROKER, TOPIC, ClusterView, change_options, view_of
from millstream.cli.connection import Cluster
from millstream.client.blocking import Address
from millstream.cluster.rebalancing import Move
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LISTS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
# A list of a move names partitions and nodes; this one somebody has set on purpose.
_ALL: Final = "*"


def set_throttle(cluster: Cluster, moves: Sequence[Move], bytes_per_second: int) -> None:
    lists = throttled_replicas(view_of(cluster), moves)
    for topic, (leaders, followers) in sorted(lists.items()):
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
    copying = {move.where: (move.before, move.added) for move in moves if move.added}
    topics = {where.topic for where in copying}
    for one in view.partitions.values():
        if one.adding and one.where.topic in topics:
            copying.setdefault(one.where, (one.before, one.adding))
    return {
        topic: (
            ",".join(_places(copying[where][0], where.partition) for where in some),
            ",".join(_places(copying[where][1], where.partition) for where in some),
        )
        for topic in topics
        if (some := [where for where in copying if where.topic == topic])
    }


def _places(nodes: Iterable[int], partition: int) -> str:
    return ",".join(f"{partition}:{node}" for node in nodes)


def remove_unused_throttle(cluster: Cluster, *, was_set: bool = False) -> list[str]:
    """Remove what no move in progress uses, also what a killed command has left. Returns the
    topics that had it. With `was_set` the rates go even if no topic has a list any more."""
    view = view_of(cluster)
    unused = unused_lists(view, throttled_topics(cluster, view))
    is_moving = any(one.is_moving for one in view.partitions.values())
    if (unused or was_set) and not is_moving:
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


def throttled_topics(cluster: Cluster, view: ClusterView) -> list[str]:
    """The topics that list throttled replicas."""
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
        if any(config.value not in (None, "", _ALL) for config in one.configs)
    ]
