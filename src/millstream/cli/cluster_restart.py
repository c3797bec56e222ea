"""`millstream cluster restart --rolling`: one node after the other, each when all are in sync.

A command that was ended goes on when it is run again: it remembers the nodes that are done, and for
which command.
"""

import shlex
import subprocess
import time
from collections.abc import Mapping
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.cluster_view import (
    ClusterView,
    PartitionView,
    first_look,
    may_pass,
    time_text,
    view_of,
)
from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import counted, echo, print_json, print_table
from millstream.cli.progress import Progress
from millstream.cli.remembered import keep_times, memory_path, recall_times
from millstream.client.blocking import Address
from millstream.wire.apis.describe_cluster import DescribeClusterBroker, DescribeClusterRequest

_POLL_SECONDS: Final = 0.3
# A node that starts accepts connections before it answers.
_ANSWER_SECONDS_MAX: Final = 5.0
# Well below the ten minutes after which a node closes an idle connection: that is no end of it.
_STOP_SECONDS_MAX: Final = 120.0
# A restart that was ended longer ago begins anew.
_REMEMBERED_SECONDS_MAX: Final = 3600.0


@click.command()
@click.option("--rolling", is_flag=True, help="One node after the other. The only way there is.")
@click.option(
    "--command",
    "template",
    required=True,
    metavar="COMMAND",
    help="Restarts a node; {node}, {host} and {port} stand for its id and address.",
)
@click.option("--node", "only", multiple=True, type=int, help="Only this node; may be repeated.")
@click.option(
    "--wait",
    "seconds_max",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds until a restarted node must be in sync. To stop, it has at most 120 of them.",
)
@click.option("--again", is_flag=True, help="Also nodes that an unfinished restart has done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def restart(
    rolling: bool,
    template: str,
    only: tuple[int, ...],
    seconds_max: float,
    again: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Restart the nodes one after the other.

    The next node is restarted when the last one is back and every replica is in sync, so no
    partition becomes unavailable. The controller is the last one. The command may restart the
    node, or only stop it if something else starts it again. Run it once more after it was ended,
    within an hour, and it goes on with the nodes that are left.

    Example:

      millstream cluster restart --rolling --command "ssh {host} systemctl restart millstream"
    """
    if not rolling:
        raise CommandFailed(
            "all nodes at once would make the cluster unavailable: add --rolling",
            exit_code=ExitCode.USAGE,
        )
    view = first_look(bootstrap, view_of)
    order = restart_order(view, only)
    lagging = out_of_sync(view)
    if lagging:
        raise CommandFailed(
            f"{counted(len(lagging), 'partition')} are not in sync, as {lagging[0].where}."
            " A restart could make them unavailable. `millstream cluster health` says what to do"
        )
    commands = {node.broker_id: filled(template, node) for node in order}
    path = memory_path("restart", view.cluster_id)
    remembered = recall_times(path)
    finished = {} if again else finished_nodes(remembered, commands, time.time())
    order = [node for node in order if node.broker_id not in finished]
    if not as_json:
        _show(commands, finished)
    if not order:
        raise CommandFailed("no node is left to restart; --again restarts them once more")
    if not yes:
        confirm(f"Restart {counted(len(order), 'node')}?", "restarting nodes")
    others = of_other_nodes(remembered, only)
    memory = {_key(node_id, commands[node_id]): at for node_id, at in finished.items()}
    seconds: dict[int, float] = {}
    for node in order:
        started_at = time.monotonic()
        _restart(node, commands[node.broker_id], bootstrap, min(seconds_max, _STOP_SECONDS_MAX))
        _wait_in_sync(bootstrap, node, view, started_at + seconds_max)
        seconds[node.broker_id] = took = time.monotonic() - started_at
        memory[_key(node.broker_id, commands[node.broker_id])] = time.time()
        keep_times(path, others | memory)
        if not as_json:
            text = f"node {node.broker_id} is back and in sync after {time_text(took)}"
            echo(f"{text} ({estimated(list(seconds.values()), len(order))})", err=True)
    keep_times(path, others)
    if as_json:
        print_json([{"node": id, "seconds": round(each, 3)} for id, each in seconds.items()])


def _key(node_id: int, command: list[str]) -> str:
    """Nodes of one machine may have the same command."""
    return f"{node_id}: {shlex.join(command)}"


def _show(commands: Mapping[int, list[str]], finished: Mapping[int, float]) -> None:
    now = time.time()
    rows = [
        (
            node_id,
            f"done {time_text(now - finished[node_id])} ago" if node_id in finished else "to do",
            shlex.join(words),
        )
        for node_id, words in commands.items()
    ]
    print_table(["NODE", "STATE", "COMMAND"], rows)


def finished_nodes(
    memory: Mapping[str, float], commands: Mapping[int, list[str]], now: float
) -> dict[int, float]:
    """The nodes for which an unfinished restart has run the same command lately, and when."""
    found = {node_id: memory.get(_key(node_id, words)) for node_id, words in commands.items()}
    return {
        node_id: at
        for node_id, at in found.items()
        if at is not None and 0 <= now - at <= _REMEMBERED_SECONDS_MAX
    }


def of_other_nodes(memory: Mapping[str, float], only: tuple[int, ...]) -> dict[str, float]:
    """What a restart of some nodes leaves of an unfinished one of all."""
    named = {str(node_id) for node_id in only}
    return {key: at for key, at in memory.items() if named and key.partition(":")[0] not in named}


def estimated(seconds: list[float], count: int) -> str:
    """How far it is, and for how long it goes on."""
    done = f"{len(seconds)} of {count}"
    left = sum(seconds) / len(seconds) * (count - len(seconds))
    return f"{done}, about {time_text(left)} left" if left else done


def restart_order(view: ClusterView, only: tuple[int, ...]) -> list[DescribeClusterBroker]:
    """The controller last: every other restart would elect it again."""
    unknown = [node for node in only if node not in view.nodes]
    if unknown:
        raise CommandFailed(f"node {unknown[0]} is not alive")
    chosen = [view.nodes[node] for node in dict.fromkeys(only) or sorted(view.nodes)]
    return sorted(chosen, key=lambda node: node.broker_id == view.controller_id)


def out_of_sync(view: ClusterView) -> list[PartitionView]:
    return [
        one
        for one in view.partitions.values()
        if one.leader < 0 or not set(one.replicas) <= set(one.in_sync)
    ]


def filled(template: str, node: DescribeClusterBroker) -> list[str]:
    values = {"{node}": str(node.broker_id), "{host}": node.host, "{port}": str(node.port)}
    words = shlex.split(template)
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    return words


def _restart(
    node: DescribeClusterBroker, command: list[str], bootstrap: str, stop_seconds: float
) -> None:
    """Run the command, and wait until the process that ran before has ended."""
    with Cluster(bootstrap) as cluster, cluster.connected(Address(node.host, node.port)) as watched:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        except OSError as error:
            raise CommandFailed(f"{shlex.join(command)}: {error}") from None
        if done.returncode:
            raise CommandFailed(f"{shlex.join(command)} failed with exit code {done.returncode}")
        # The kernel closes it when the process ends: nothing else shows a quick restart.
        if not watched.wait_closed(stop_seconds):
            raise CommandFailed(
                still_running(node.broker_id, command, stop_seconds), exit_code=ExitCode.TIMEOUT
            )


def still_running(node_id: int, command: list[str], seconds: float) -> str:
    """What to do where the command has not ended the process that ran before."""
    return (
        f"node {node_id} still runs {time_text(seconds)} after the command. The nodes after"
        f" it were not restarted. Check that `{shlex.join(command)}` restarts node {node_id}, and"
        " in the node's log what it waits for; then run the same command again, and it goes on"
        " with this node"
    )


def _wait_in_sync(
    bootstrap: str, node: DescribeClusterBroker, before: ClusterView, deadline: float
) -> None:
    progress = Progress(quiet=False)
    answers = False
    try:
        while True:
            # First: a node that was killed is in sync until the controller notices. When the new
            # process answers, the controller has seen its start.
            answers = answers or _answers(bootstrap, node)
            view = _look(bootstrap)
            if view is None:
                # The bootstrap address may be that of the node itself.
                what = f"node {node.broker_id} is restarting, and {bootstrap} does not answer yet"
            elif answers and view.nodes.keys() >= before.nodes.keys() and not out_of_sync(view):
                return
            else:
                # It may have come back at another address.
                node = view.nodes.get(node.broker_id, node)
                what = waited_for(view, node, answers=answers)
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"{what}. No other node was restarted. `millstream cluster health` says more",
                    exit_code=ExitCode.TIMEOUT,
                )
            progress.show(lambda text=f"waiting: {what}": text)  # type: ignore[misc]  # bound now
            time.sleep(_POLL_SECONDS)
    finally:
        progress.stop()


def _look(bootstrap: str) -> ClusterView | None:
    """None if no node answers, or the cluster has no controller."""
    try:
        return first_look(bootstrap, view_of)
    except CommandFailed as failed:
        if not may_pass(failed):
            raise
        return None


def _answers(bootstrap: str, node: DescribeClusterBroker) -> bool:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    try:
        with Cluster(bootstrap, answer_seconds_max=_ANSWER_SECONDS_MAX) as cluster:
            cluster.ask(Address(node.host, node.port), request, 0)
    except CommandFailed as failed:
        if failed.exit_code is not ExitCode.UNREACHABLE:
            raise
        return False
    return True


def waited_for(view: ClusterView, node: DescribeClusterBroker, *, answers: bool) -> str:
    """Why the next node is not restarted yet."""
    state = "alive" if node.broker_id in view.nodes else "not alive"
    if not answers:
        state = "not answering yet"
    lagging = counted(len(out_of_sync(view)), "partition")
    return f"node {node.broker_id} is {state}, {lagging} not in sync"
