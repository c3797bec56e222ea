"""`millstream cluster health`: what is wrong, since when, and what to do. Exit code 1 if anything.

The protocol does not say when a problem began. The command remembers when it first saw each one,
in a file of the user; run it regularly, and the times are right.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.cluster_throttle import throttled_topics, unused_lists
from millstream.cli.cluster_view import (
    ClusterView,
    PartitionView,
    size_text,
    time_text,
    view_from,
    view_of,
)
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import counted, echo, print_json
from millstream.cli.remembered import keep_times, memory_path, recall_times
from millstream.client.blocking import Address
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.describe_log_dirs import DescribeLogDirsRequest

_FULL_SHARE: Final = 0.9
_NAMED_MAX: Final = 5
# A node that takes longer is silent. Less than a session, after which a stuck node is not alive.
_ANSWER_SECONDS_MAX: Final = 5.0
_TOPIC_TYPE: Final = 2
_MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Problem:
    """`keys` name what has the problem, as its partitions: it lasts as long as one of them has it.
    `is_notice` does not change the exit code."""

    keys: tuple[str, ...]
    text: str
    advice: str
    is_notice: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    node: int
    path: str
    is_failed: bool
    total_bytes: int
    usable_bytes: int


@click.command()
@json_option
@bootstrap_option
def health(as_json: bool, bootstrap: str) -> None:
    """Say what is wrong with the cluster, since when, and what to do. Exit code 0 if nothing."""
    with Cluster(bootstrap, answer_seconds_max=_ANSWER_SECONDS_MAX) as cluster:
        view = _view(cluster)
        disks, silent = _disks(cluster, view)
        min_isr = _min_isr(cluster, view)
        throttled = throttled_topics(cluster, view)
    problems = found_problems(view, disks, min_isr, throttled, silent)
    since = remembered(memory_path("health", view.cluster_id), problems, time.time())
    if as_json:
        print_json(
            [
                {
                    "problem": one.text,
                    "advice": one.advice,
                    "is_notice": one.is_notice,
                    "since": int(since[one]),
                }
                for one in problems
            ]
        )
    else:
        _print(view, problems, since)
    wrong = [one for one in problems if not one.is_notice]
    if wrong:
        raise CommandFailed(f"{counted(len(wrong), 'problem')} found")


def _print(view: ClusterView, problems: list[Problem], since: Mapping[Problem, float]) -> None:
    now = time.time()
    for one in problems:
        seen = now - since[one]
        when = f"seen for {time_text(seen)}" if seen >= 1 else "first seen now"
        echo(f"{'notice' if one.is_notice else 'PROBLEM'}: {one.text} ({when})\n  {one.advice}")
    if all(one.is_notice for one in problems):
        nodes = counted(len(view.nodes), "node")
        echo(f"healthy: {nodes}, {counted(len(view.partitions), 'partition')}")


def found_problems(
    view: ClusterView,
    disks: Iterable[Disk],
    min_isr: Mapping[str, int],
    throttled: Iterable[str] = (),
    silent: Iterable[int] = (),
) -> list[Problem]:
    """The worst first. A partition is in the worst group that it belongs to. `silent` are nodes
    that count as alive and do not answer."""
    found: list[Problem] = []
    if view.controller_id < 0:
        text = "the cluster has no controller, so nothing is elected"
        found.append(
            Problem(("controller",), text, "Check that ZooKeeper runs and nodes reach it.")
        )
    found += _missing_nodes(view)
    found += _silent_nodes(view, silent)
    rest = list(view.partitions.values())
    for key, is_so, text, advice, is_notice in _GROUPS:
        some = [one for one in rest if is_so(one, min_isr.get(one.where.topic, 1))]
        rest = [one for one in rest if one not in some]
        if some:
            named = f"{_said_of(len(some), text)}: {_named(some)}"
            keys = tuple(f"{key} {one.where}" for one in some)
            found.append(Problem(keys, named, advice, is_notice))
    return [*found, *_disk_problems(disks), *_left_throttle(view, throttled)]


def _left_throttle(view: ClusterView, throttled: Iterable[str]) -> Iterator[Problem]:
    """Of a command that was killed before its moves had ended."""
    if any(one.is_moving for one in view.partitions.values()):
        return
    topics = unused_lists(view, throttled)
    if topics:
        yield Problem(
            ("throttle",),
            f"nothing is moving, but the throttle of moves is still set for {', '.join(topics)}",
            "Replicas that fall behind would catch up slowly. Run the command that moved them"
            " again, or remove it: millstream cluster reassign --cancel",
            is_notice=True,
        )


def _missing_nodes(view: ClusterView) -> Iterator[Problem]:
    wanted = {node for one in view.partitions.values() for node in one.replicas}
    for node in sorted(wanted - view.nodes.keys()):
        count = sum(node in one.replicas for one in view.partitions.values())
        yield Problem(
            (f"node {node}",),
            f"node {node} is not alive; it has replicas of {counted(count, 'partition')}",
            f"Start it. If it will not come back: millstream cluster decommission {node}",
        )


def _silent_nodes(view: ClusterView, silent: Iterable[int]) -> Iterator[Problem]:
    for node in silent:
        role = ", the controller," if node == view.controller_id else ""
        yield Problem(
            (f"silent {node}",),
            f"node {node}{role} does not answer, and counts as alive",
            "Look at its process, its disk and its network. If it is stuck, end it: others take"
            " over at once, otherwise when its session ends (zookeeper.session.timeout.ms).",
        )


_GROUPS: Final[tuple[tuple[str, Callable[[PartitionView, int], bool], str, str, bool], ...]] = (
    (
        "offline",
        lambda one, min_isr: one.leader < 0,
        "have no leader and cannot be used",
        "Start the nodes of their replicas. If their data is lost:"
        " millstream cluster elect --unclean TOPIC:PARTITION",
        False,
    ),
    (
        "below-min-isr",
        lambda one, min_isr: len(one.in_sync) < min(min_isr, len(one.before), len(one.target)),
        "have fewer replicas in sync than min.insync.replicas and refuse acks=all",
        "Start the missing nodes; `millstream topic describe TOPIC` shows which are in sync.",
        False,
    ),
    (
        "moving",
        lambda one, min_isr: one.is_moving,
        "are moving to other nodes",
        "Wait, or undo it: millstream cluster reassign --cancel",
        True,
    ),
    (
        "under-replicated",
        lambda one, min_isr: not set(one.replicas) <= set(one.in_sync),
        "have replicas that are not in sync",
        "If their nodes run, they are catching up; otherwise start them. The log of a node says"
        " what it waits for.",
        False,
    ),
    (
        "not-preferred",
        lambda one, min_isr: one.leader != one.replicas[0],
        "are not led by the preferred replica",
        "If they are many, they return by themselves at the next check"
        " (leader.imbalance.check.interval.seconds); now: millstream cluster elect",
        True,
    ),
)


def _said_of(count: int, text: str) -> str:
    """`2 partitions have ...`, `1 partition has ...`."""
    verb, _, rest = text.partition(" ")
    return f"{counted(count, 'partition')} {_OF_ONE[verb] if count == 1 else verb} {rest}"


_OF_ONE: Final = {"are": "is", "have": "has"}


def _named(partitions: list[PartitionView]) -> str:
    names = [str(one.where) for one in partitions[:_NAMED_MAX]]
    more = f" and {len(partitions) - len(names)} more" if len(partitions) > len(names) else ""
    return ", ".join(names) + more


def _disk_problems(disks: Iterable[Disk]) -> Iterator[Problem]:
    for disk in disks:
        if disk.is_failed:
            yield Problem(
                (f"disk {disk.node}",),
                f"the data directory {disk.path} of node {disk.node} has failed",
                "Check the disk, then restart the node.",
            )
        elif disk.total_bytes > 0 and disk.usable_bytes < (1 - _FULL_SHARE) * disk.total_bytes:
            used = 1 - disk.usable_bytes / disk.total_bytes
            yield Problem(
                (f"full {disk.node}",),
                f"the disk of node {disk.node} is {used:.0%} full,"
                f" {size_text(disk.usable_bytes)} are left",
                "Shorten retention.ms or retention.bytes of large topics, or add a node and run"
                " millstream cluster rebalance.",
            )


# -- asking ---------------------------------------------------------------------------------


def _view(cluster: Cluster) -> ClusterView:
    """As the controller sees it; as the first node does where the controller does not answer."""
    try:
        return view_of(cluster)
    except CommandFailed as failed:
        if failed.exit_code is not ExitCode.UNREACHABLE:
            raise
        return view_from(cluster, cluster.first)


def _disks(cluster: Cluster, view: ClusterView) -> tuple[list[Disk], list[int]]:
    """The disks, and the nodes that do not answer."""
    found: list[Disk] = []
    silent: list[int] = []
    for node in view.nodes.values():
        try:
            answer = cluster.ask(
                Address(node.host, node.port), DescribeLogDirsRequest(topics=[]), 4
            )
        except CommandFailed as failed:
            if failed.exit_code is not ExitCode.UNREACHABLE:
                raise
            silent.append(node.broker_id)
            continue
        found += [
            Disk(
                node.broker_id, one.log_dir, bool(one.error_code), one.total_bytes, one.usable_bytes
            )
            for one in answer.results
        ]
    return found, silent


def _min_isr(cluster: Cluster, view: ClusterView) -> dict[str, int]:
    topics = sorted({where.topic for where in view.partitions})
    resources = [
        DescribeConfigsResource(
            resource_type=_TOPIC_TYPE, resource_name=name, configuration_keys=[_MIN_ISR]
        )
        for name in topics
    ]
    if not resources:
        return {}
    answer = cluster.ask(cluster.first, DescribeConfigsRequest(resources=resources))
    return {
        one.resource_name: int(one.configs[0].value or 1) for one in answer.results if one.configs
    }


# -- since when -----------------------------------------------------------------------------


def remembered(path: Path, problems: Collection[Problem], now: float) -> dict[Problem, float]:
    """When each problem was first seen, in any of what has it now. What is over is forgotten."""
    before = recall_times(path)
    since = {key: before.get(key, now) for one in problems for key in one.keys}
    keep_times(path, since)
    return {one: min(since[key] for key in one.keys) for one in problems}
