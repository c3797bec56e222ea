"""Views of made-up clusters, for the commands that look at one."""

from millstream.cli.cluster_view import ClusterView, PartitionView
from millstream.model import TopicPartition
from millstream.wire.apis.describe_cluster import DescribeClusterBroker


def broker(node: int, rack: str | None = None) -> DescribeClusterBroker:
    return DescribeClusterBroker(broker_id=node, host=f"h{node}", port=9092, rack=rack)


def view(*partitions: PartitionView, nodes: tuple[int, ...] = (1, 2, 3)) -> ClusterView:
    return ClusterView(
        "cluster", 1, {node: broker(node) for node in nodes}, {one.where: one for one in partitions}
    )


def partition(
    number: int = 0,
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    in_sync: tuple[int, ...] | None = None,
    *,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionView:
    where = TopicPartition("t", number)
    in_sync = replicas if in_sync is None else in_sync
    return PartitionView(where, leader, replicas, in_sync, adding, removing)
