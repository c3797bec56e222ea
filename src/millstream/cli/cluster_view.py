"""A cluster as the commands that change it see it: nodes, partitions, moves in progress.

Everything is asked over the Kafka protocol, so that it works on Apache Kafka too.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode, NotNow
from millstream.client.blocking import Address
from millstream.cluster.rebalancing import Placed
from millstream.errors import KafkaCode
from millstream.model import INTERNAL_TOPICS, TopicPartition
from millstream.wire.apis.describe_cluster import DescribeClusterBroker
from millstream.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from millstream.wire.apis.metadata import MetadataResponse

TOPIC: Final = 2
BROKER: Final = 4
_SET, _DELETE = 0, 1
# A node that leads or answers may just be restarting.
_RETRY_SECONDS_MAX: Final = 60.0
_RETRY_PAUSE_SECONDS: Final = 0.5
# Where moves end all the time, the last look has to do.
_LOOKS_MAX: Final = 10

# The nodes that a move adds, and those that it removes.
Reassignments = dict[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionView:
    """`replicas` are those that are there now, with those that a move adds or removes."""

    where: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def before(self) -> tuple[int, ...]:
        """The replicas when its move began, and again if it is cancelled."""
        return tuple(node for node in self.replicas if node not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when its move is complete."""
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def is_internal(self) -> bool:
        return self.where.topic in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str
    controller_id: int
    nodes: dict[int, DescribeClusterBroker]
    partitions: dict[TopicPartition, PartitionView]

    @property
    def racks(self) -> dict[int, str | None]:
        return {node.broker_id: node.rack for node in self.nodes.values()}

    def is_moving(self, where: TopicPartition) -> bool:
        state = self.partitions.get(where)
        return state is not None and state.is_moving

    def placed(self, sizes: Mapping[TopicPartition, int]) -> list[Placed]:
        """The partitions for a plan: where they are moving to counts."""
        return [
            Placed(one.where, one.target, sizes.get(one.where, 0))
            for one in self.partitions.values()
        ]


def controller_of(cluster: Cluster) -> Address:
    """Where changes are requested, and seen first. Raises CommandFailed."""
    metadata = cluster.metadata_of_nodes()
    for one in metadata.brokers:
        if one.node_id == metadata.controller_id:
            return Address(one.host, one.port)
    raise CommandFailed(
        "the cluster has no controller now; try again in a moment", exit_code=ExitCode.UNREACHABLE
    )


def view_of(cluster: Cluster) -> ClusterView:
    """As the controller sees it: other nodes hear of changes a moment later."""
    return view_from(cluster, controller_of(cluster))


def view_from(cluster: Cluster, node: Address) -> ClusterView:
    """As this node sees it."""
    metadata, moving = _at_one_moment(cluster, node)
    partitions: dict[TopicPartition, PartitionView] = {}
    for topic in metadata.topics:
        for one in topic.partitions:
            where = TopicPartition(topic.name or "", one.partition_index)
            adding, removing = moving.get(where, ((), ()))
            partitions[where] = PartitionView(
                where,
                one.leader_id,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                adding,
                removing,
            )
    nodes = {node.broker_id: node for node in cluster.live_nodes()}
    return ClusterView(
        metadata.cluster_id or "", metadata.controller_id, nodes, dict(sorted(partitions.items()))
    )


def _at_one_moment(cluster: Cluster, node: Address) -> tuple[MetadataResponse, Reassignments]:
    """Replicas and moves that belong together: a move that ends between the two questions would
    look as if it had ended with all its replicas."""
    moving = reassignments(cluster, node)
    for _ in range(_LOOKS_MAX):
        before = moving
        metadata = cluster.metadata(node=node)
        moving = reassignments(cluster, node)
        if moving == before:
            break
    return metadata, moving


def reassignments(cluster: Cluster, controller: Address) -> Reassignments:
    """The partitions that are moving: the nodes that each adds, and those that it removes."""
    answer = cluster.ask(controller, ListPartitionReassignmentsRequest(topics=None))
    check(answer.error_code, "reassignments", answer.error_message)
    return {
        TopicPartition(topic.name, one.partition_index): (
            tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def sizes_on(cluster: Cluster, node: DescribeClusterBroker) -> dict[TopicPartition, int]:
    """The bytes of each replica on a node."""
    answer = cluster.ask(Address(node.host, node.port), DescribeLogDirsRequest(topics=None), 1)
    return {
        TopicPartition(topic.name, one.partition_index): one.partition_size
        for directory in answer.results
        for topic in directory.topics
        for one in topic.partitions
        if not one.is_future_key
    }


def first_look(bootstrap: str, look: Callable[[Cluster], T]) -> T:
    """The first question of a command: nothing is under way yet that would be worth waiting for."""
    with Cluster(bootstrap) as cluster:
        return look(cluster)


def patiently(bootstrap: str, look: Callable[[Cluster], T]) -> T:
    """Ask the cluster over a new connection; again for a while if a node goes away meanwhile."""
    deadline = time.monotonic() + _RETRY_SECONDS_MAX
    while True:
        try:
            with Cluster(bootstrap) as cluster:
                return look(cluster)
        except CommandFailed as failed:
            if not may_pass(failed) or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_PAUSE_SECONDS)


def may_pass(failed: CommandFailed) -> bool:
    """Is it worth another try? A node that is away or busy may just be restarting."""
    return failed.exit_code is ExitCode.UNREACHABLE or isinstance(failed, NotNow)


def change_options(
    cluster: Cluster,
    resource_type: int,
    name: str,
    settings: Mapping[str, str | None],
    *,
    node: Address | None = None,
    validate_only: bool = False,
) -> None:
    """Set options of a topic or a node; None deletes one. Raises CommandFailed."""
    resource = IncrementalAlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementallyAlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in settings.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = cluster.ask(node or cluster.first, request)
    whose = "topic" if resource_type == TOPIC else "node"
    for one in answer.responses:
        if one.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandFailed(
                f"topic {name} does not exist. `millstream topic list` shows the existing ones"
            )
        check(one.error_code, f"{whose} {name or 'default'}", one.error_message)


def parse_settings(settings: Sequence[str], deleted: Iterable[str]) -> dict[str, str | None]:
    """`name=value` texts, and names whose settings are deleted."""
    wanted: dict[str, str | None] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandFailed(f"{text!r}: write it as name=value", exit_code=ExitCode.USAGE)
        wanted[name.strip()] = value.strip()
    for name in deleted:
        if name in wanted:
            raise CommandFailed(f"{name} is set and deleted", exit_code=ExitCode.USAGE)
        wanted[name] = None
    return wanted


def size_text(size_bytes: float) -> str:
    """`12.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def time_text(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
