"""What is wrong with a cluster, from one sample: decided from plain values."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from millstream.console.facts import ClusterFacts, GroupFacts

# A disk with less free space than this share will soon stop the node.
DISK_FREE_MIN: Final = 0.1
# Names in one line of a problem.
_NAMED_MAX: Final = 5
# A group that has not committed for this long is not just slow.
_IDLE_MS: Final = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """`level` is error (records cannot be read or written) or warning."""

    level: str
    title: str
    detail: str
    # Where the console shows more; empty if nowhere.
    url: str = ""


def find_problems(facts: ClusterFacts) -> list[Problem]:
    found = [*_partitions(facts), *_nodes(facts), *_groups(facts)]
    found += [Problem("warning", "A request failed", failure) for failure in facts.failures[:5]]
    return sorted(found, key=lambda problem: problem.level)


def _partitions(facts: ClusterFacts) -> list[Problem]:
    offline, behind = [], []
    for topic in facts.topics.values():
        for one in topic.partitions:
            if one.is_offline:
                offline.append(f"{topic.name}-{one.index}")
            elif one.is_under_replicated:
                behind.append(f"{topic.name}-{one.index}")
    found = []
    if offline:
        title = f"{_counted(len(offline), 'partition')} offline"
        detail = f"No leader: {_some(offline)}. Start the nodes that hold their replicas."
        found.append(Problem("error", title, detail, "/topics?problem=offline"))
    if behind:
        title = f"{_counted(len(behind), 'partition')} under-replicated"
        detail = f"Replicas are missing from the ISR: {_some(behind)}."
        found.append(Problem("warning", title, detail, "/topics?problem=under-replicated"))
    return found


def _nodes(facts: ClusterFacts) -> list[Problem]:
    alive = {node.node_id for node in facts.nodes}
    named = {
        replica
        for topic in facts.topics.values()
        for one in topic.partitions
        for replica in one.replicas
    }
    found = [
        Problem("error", f"Node {node_id} is down", "It has replicas and is not alive.", "/nodes")
        for node_id in sorted(named - alive)
    ]
    if facts.controller_id not in alive:
        found.append(Problem("error", "No controller", "No leader can be elected.", "/nodes"))
    for node in facts.nodes:
        if node.disk_total_bytes > 0:
            free = node.disk_usable_bytes / node.disk_total_bytes
            if free < DISK_FREE_MIN:
                title = f"The disk of node {node.node_id} is {100 * (1 - free):.0f} % full"
                detail = "Shorten retention, delete topics or add space."
                found.append(Problem("warning", title, detail, "/nodes"))
    return found


def _groups(facts: ClusterFacts) -> list[Problem]:
    found = [group.group_id for group in facts.groups.values() if is_abandoned(facts, group)]
    if not found:
        return []
    if len(found) == 1:
        lag = facts.group_lag(facts.groups[found[0]])
        title = f"Group {found[0]} has no members and is behind"
        detail = f"{lag:,} records are waiting for a consumer."
        return [Problem("warning", title, detail, f"/groups/{quote(found[0], safe='')}")]
    title = f"{len(found)} groups have no members and are behind"
    return [Problem("warning", title, f"{_some(found)}.", "/groups?sort=lag")]


def is_abandoned(facts: ClusterFacts, group: GroupFacts) -> bool:
    """Nobody is a member, there is something to read, and nothing moves. Programs that only
    commit, such as Spark, never have members."""
    is_idle = facts.taken_at_ms - group.unmoved_since_ms > _IDLE_MS
    return group.state == "Empty" and is_idle and facts.group_lag(group) > 0


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
