"""`millstream cluster rebalance` and `decommission`: move replicas so that nodes are equal, or
so that one has none."""

from collections.abc import Iterable
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.cluster_moves import (
    carry_out,
    moves_as_json,
    pace_of,
    pace_options,
    remove_leftovers,
)
from millstream.cli.cluster_view import ClusterView, first_look, patiently, view_of
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed
from millstream.cli.output import counted, echo, joined, print_json, print_outcome
from millstream.cluster.rebalancing import CannotPlan, Move, Placed, balanced, evacuated

_NAMED_MAX: Final = 3


@click.command()
@pace_options
@json_option
@bootstrap_option
def rebalance(mb_per_second: float, at_once: int, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Give all nodes about as many bytes and as many leaders.

    New nodes get their share; small partitions are counted instead of their bytes. A partition
    never has two replicas on one node, nor fewer racks than before. The command shows its plan,
    asks, and then shows how far it is. Ctrl-C stops the command; what it has started continues,
    and the same command goes on from there.
    """
    view, partitions = first_look(bootstrap, _look)
    moves = balanced(partitions, view.racks)
    moves = [*moves, *_in_progress(view, partitions, moves)]
    if moves:
        carry_out(bootstrap, moves, pace_of(mb_per_second, at_once), yes=yes, as_json=as_json)
    else:
        remove_leftovers(bootstrap)
        if not as_json:
            nodes = counted(len(view.nodes), "node")
            echo(f"{nodes} have about equal bytes and leaders", err=True)
    if as_json:
        print_json(moves_as_json(moves))


@click.command()
@click.argument("node", type=int)
@pace_options
@json_option
@bootstrap_option
def decommission(
    node: int, mb_per_second: float, at_once: int, yes: bool, as_json: bool, bootstrap: str
) -> None:
    """Move all replicas of NODE to other nodes, so that it can be stopped for good.

    NODE may be dead already. The command shows its plan, asks, and then shows how far it is. Run
    it again to continue after it was stopped or killed; of a node that has no replicas it says so,
    with exit code 0.
    """
    first_look(bootstrap, _look)
    done: list[Move] = []
    while True:
        view, partitions = patiently(bootstrap, _look)
        try:
            moves = evacuated(partitions, view.racks, {node})
        except CannotPlan as problem:
            raise CommandFailed(str(problem)) from None
        moves = [*moves, *_in_progress(view, partitions, moves)]
        if not moves:
            break
        warning = leaderless_text(view, moves)
        if warning is not None:
            echo(f"millstream: {warning}", err=True)
        pace = pace_of(mb_per_second, at_once)
        carry_out(bootstrap, moves, pace, yes=yes, as_json=as_json)
        done += moves
        # New topics may have got replicas there in the meantime.
        yes = True
    if not done:
        remove_leftovers(bootstrap)
    print_outcome(_outcome(view, node), moves_as_json(done), as_json=as_json)


def leaderless_text(view: ClusterView, moves: Iterable[Move]) -> str | None:
    """The moves that have nobody to copy from now, and what to do. None if each has somebody."""
    states = [view.partitions[move.where] for move in moves]
    stuck = [one for one in states if one.leader < 0]
    if not stuck:
        return None
    names = ", ".join(str(one.where) for one in stuck[:_NAMED_MAX])
    more = f" and {len(stuck) - _NAMED_MAX} more" if len(stuck) > _NAMED_MAX else ""
    ways = []
    dead = sorted({node for one in stuck for node in one.before} - view.nodes.keys())
    if dead:
        ways.append(f"start node{'s' * (len(dead) > 1)} {joined(dead)} again")
    # An election needs a live replica.
    electable = [one.where for one in stuck if view.nodes.keys() & set(one.before)]
    if electable:
        place = f"{electable[0].topic}:{electable[0].partition}"
        ways.append(
            "where a replica is alive, have it elected, which may lose records:"
            f" millstream cluster elect --unclean {place}"
        )
    count = counted(len(stuck), "partition")
    return (
        f"{count} without a leader cannot move now: {names}{more}. What to do: {'; or '.join(ways)}"
    )


def _outcome(view: ClusterView, node: int) -> str:
    """A node that is neither alive nor has replicas has left, or there never was one of this id."""
    if node in view.nodes:
        return f"node {node} has no replicas: stop it"
    return (
        f"node {node} has no replicas and is not alive: nothing is left to do."
        f" Alive are {joined(view.nodes)}"
    )


def _look(cluster: Cluster) -> tuple[ClusterView, list[Placed]]:
    view = view_of(cluster)
    return view, view.placed(cluster.partition_sizes())


def _in_progress(view: ClusterView, partitions: list[Placed], moves: list[Move]) -> list[Move]:
    """Moves that somebody has started, as an earlier run of this command: they are waited for."""
    planned = {move.where for move in moves}
    sizes = {one.where: one.size_bytes for one in partitions}
    return [
        Move(one.where, one.before, one.target, sizes.get(one.where, 0))
        for one in view.partitions.values()
        if one.is_moving and one.where not in planned
    ]
