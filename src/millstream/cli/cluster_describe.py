"""`millstream cluster describe`: the nodes, and the partitions that have a problem."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.cluster_view import Reassignments, reassignments
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, counted, echo, joined, print_json, print_table
from millstream.model import INTERNAL_TOPICS, TopicPartition
from millstream.wire.apis.describe_cluster import DescribeClusterBroker
from millstream.wire.apis.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    # The replicas that a move adds and removes.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_internal(self) -> bool:
        return self.topic in INTERNAL_TOPICS

    @property
    def problem(self) -> str | None:
        if self.leader < 0:
            return "no leader"
        if not set(self.replicas) - set(self.adding) <= set(self.in_sync):
            return "under-replicated"
        if self.adding or self.removing:
            return "moving"
        if self.leader != self.replicas[0]:
            return "not led by its preferred replica"
        return None


@click.command(name="describe")
@click.option("--all", "with_internal", is_flag=True, help="Also list those of internal topics.")
@json_option
@bootstrap_option
def describe_cluster(with_internal: bool, as_json: bool, bootstrap: str) -> None:
    """Show the nodes of a cluster, and the partitions that have a problem."""
    with Cluster(bootstrap) as cluster:
        metadata, nodes = cluster.metadata(), cluster.live_nodes()
        partitions = list(placed_partitions(metadata, _moving(cluster)))
    if as_json:
        print_json(_as_json(metadata, nodes, partitions))
        return
    echo(f"cluster     {metadata.cluster_id}\ncontroller  {metadata.controller_id}\n")
    print_table(["NODE", "ADDRESS", "RACK", "LEADS", "REPLICAS"], _node_rows(nodes, partitions))
    wrong = [one for one in partitions if one.problem is not None]
    echo(f"\n{len(partitions) - len(wrong)} of {len(partitions)} partitions are healthy")
    listed = [one for one in wrong if with_internal or not one.is_internal]
    if listed:
        echo()
        print_table(
            ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "PROBLEM"],
            [
                (
                    one.topic,
                    one.partition,
                    "none" if one.leader < 0 else one.leader,
                    joined(one.replicas),
                    joined(one.in_sync) or "none",
                    one.problem,
                )
                for one in listed
            ],
        )
    if len(listed) < len(wrong):
        echo()
        for line in summed_up(wrong):
            echo(line)


def summed_up(wrong: Iterable[PlacedPartition]) -> Iterable[str]:
    """One line for each internal topic and problem: a topic has fifty partitions."""
    counts = Counter((one.topic, one.problem) for one in wrong if one.is_internal)
    for (topic, problem), count in sorted(counts.items()):
        yield f"{topic}: {counted(count, 'partition')} {problem} (--all lists them)"


def _moving(cluster: Cluster) -> Reassignments:
    """Nothing where this may not be asked: the description is useful without."""
    try:
        return reassignments(cluster, cluster.first)
    except CommandFailed:
        return {}


def placed_partitions(
    metadata: MetadataResponse, moving: Reassignments
) -> Iterable[PlacedPartition]:
    for topic in sorted(metadata.topics, key=lambda one: (one.name in INTERNAL_TOPICS, one.name)):
        for one in sorted(topic.partitions, key=lambda one: one.partition_index):
            yield PlacedPartition(
                topic.name or "",
                one.partition_index,
                one.leader_id,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                *moving.get(TopicPartition(topic.name or "", one.partition_index), ((), ())),
            )


def _node_rows(
    nodes: Sequence[DescribeClusterBroker], partitions: Sequence[PlacedPartition]
) -> list[tuple[int, str, str | None, int, int]]:
    led = Counter(one.leader for one in partitions)
    held = Counter(node for one in partitions for node in one.replicas)
    return [
        (
            node.broker_id,
            f"{node.host}:{node.port}",
            node.rack,
            led[node.broker_id],
            held[node.broker_id],
        )
        for node in nodes
    ]


def _as_json(
    metadata: MetadataResponse,
    nodes: Sequence[DescribeClusterBroker],
    partitions: Sequence[PlacedPartition],
) -> JsonValue:
    return {
        "cluster_id": metadata.cluster_id,
        "controller_id": metadata.controller_id,
        "nodes": [
            {"id": number, "address": address, "rack": rack, "leads": led, "replicas": held}
            for number, address, rack, led, held in _node_rows(nodes, partitions)
        ],
        "partitions": len(partitions),
        "problems": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
                "problem": one.problem,
            }
            for one in partitions
            if one.problem is not None
        ],
    }
