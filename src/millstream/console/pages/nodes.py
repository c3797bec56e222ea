"""The nodes of the cluster: who leads how much, disks, and partitions that miss replicas."""

from dataclasses import dataclass
from typing import Final

from millstream.console.console import Console
from millstream.console.facts import NodeFacts
from millstream.console.page import Page, Values
from millstream.console.sampling import IsrEvent

_PARTITIONS_SHOWN: Final = 100
_EVENTS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class TroubledPartition:
    topic: str
    index: int
    leader: int
    replicas: list[int]
    isr: list[int]


@dataclass(frozen=True, slots=True)
class Nodes:
    cluster_id: str
    controller_id: int
    rows: list[NodeFacts]
    # Have replicas, and are not alive.
    dead: list[int]
    troubled: list[TroubledPartition]
    troubled_count: int
    # Changes of leaders and in-sync replicas, newest first.
    events: list[IsrEvent]


async def nodes(console: Console, values: Values) -> Nodes:
    facts = await console.facts()
    alive = {node.node_id for node in facts.nodes}
    named: set[int] = set()
    troubled = []
    for topic in facts.topics.values():
        for one in topic.partitions:
            named.update(one.replicas)
            if one.is_offline or one.is_under_replicated:
                troubled.append(
                    TroubledPartition(topic.name, one.index, one.leader, one.replicas, one.isr)
                )
    return Nodes(
        facts.cluster_id,
        facts.controller_id,
        facts.nodes,
        sorted(named - alive),
        troubled[:_PARTITIONS_SHOWN],
        len(troubled),
        list(console.sampler.isr_events)[: -_EVENTS_SHOWN - 1 : -1],
    )


PAGES = (
    Page(
        "/nodes",
        "nodes.html",
        nodes,
        "Nodes, disks and under-replicated partitions",
        is_of_sample=True,
    ),
)
