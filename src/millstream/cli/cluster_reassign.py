"""`millstream cluster reassign`: move partitions by hand, from a file, or back."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.cluster_moves import (
    cancel_moves,
    carry_out,
    moves_as_json,
    pace_of,
    pace_options,
    remove_leftovers,
)
from millstream.cli.cluster_throttle import remove_unused_throttle
from millstream.cli.cluster_view import ClusterView, first_look, patiently, view_of
from millstream.cli.confirming import confirm
from millstream.cli.connection import NOT_NOW, Cluster
from millstream.cli.failure import CommandFailed, ExitCode, NotNow
from millstream.cli.output import (
    counted,
    echo,
    joined,
    print_json,
    print_outcome,
    print_table,
)
from millstream.cluster.rebalancing import Move
from millstream.errors import KafkaCode
from millstream.model import TopicPartition

# There is nothing to cancel any more.
_ENDED: Final = (KafkaCode.NO_REASSIGNMENT_IN_PROGRESS, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)


@click.command()
@click.argument("places", nargs=-1, metavar="[TOPIC[:PARTITION]...]")
@click.option("--to", "nodes", metavar="NODE[,NODE...]", help="The new replicas, the leader first.")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A plan in the JSON format of Kafka's kafka-reassign-partitions.",
)
@click.option(
    "--cancel",
    is_flag=True,
    help="Undo moves in progress: of all partitions, or of these, or of those in the file.",
)
@pace_options
@json_option
@bootstrap_option
def reassign(
    places: tuple[str, ...],
    nodes: str | None,
    path: Path | None,
    cancel: bool,
    mb_per_second: float,
    at_once: int,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Move partitions to the nodes that you name.

    Examples:

      millstream cluster reassign orders:0 --to 1,2,4

      millstream cluster reassign --file plan.json

      millstream cluster reassign --cancel
    """
    check_usage(places, nodes, path, cancel=cancel)
    plan = None if path is None else read_plan(path)
    view, sizes = first_look(bootstrap, lambda c: (view_of(c), c.partition_sizes()))
    if cancel:
        named = list(plan) if plan is not None else _named(view, places)
        _cancel(bootstrap, view, named, yes=yes, as_json=as_json)
        return
    wanted = plan
    if wanted is None:
        wanted = dict.fromkeys(chosen(view, places), parse_nodes(nodes or ""))
    moves = planned(view, wanted, sizes)
    if moves:
        carry_out(bootstrap, moves, pace_of(mb_per_second, at_once), yes=yes, as_json=as_json)
    else:
        remove_leftovers(bootstrap)
        if not as_json:
            echo("the partitions are there already", err=True)
    if as_json:
        print_json(moves_as_json(moves))


def check_usage(
    places: tuple[str, ...], nodes: str | None, path: Path | None, *, cancel: bool
) -> None:
    """Raises CommandFailed for options that contradict each other."""
    problem = None
    if cancel and nodes is not None:
        problem = "--cancel returns partitions to where they were: omit --to"
    elif path is not None and (places or nodes is not None):
        problem = "the --file names the partitions and nodes: omit others"
    elif not cancel and path is None and (nodes is None or not places):
        problem = "name partitions and --to, or a --file"
    if problem is not None:
        raise CommandFailed(problem, exit_code=ExitCode.USAGE)


def _cancel(
    bootstrap: str, view: ClusterView, places: list[TopicPartition], *, yes: bool, as_json: bool
) -> None:
    """Raises CommandFailed for moves that cannot be cancelled, when the others are."""
    states = [view.partitions[where] for where in places if where in view.partitions]
    moving = [Move(one.where, one.before, one.target, 0) for one in states if one.is_moving]
    if not moving:
        remove_leftovers(bootstrap)
        print_outcome("nothing is moving", [], as_json=as_json)
        return
    if not as_json:
        show_cancelled(moving)
    if not yes:
        confirm(f"Cancel the move of {counted(len(moving), 'partition')}?", "cancelling moves")
    cancelling = Cancelling([one.where for one in moving])
    try:
        patiently(bootstrap, cancelling.step)
    except NotNow as failed:
        cancelling.give_up(str(failed))
    if cancelling.ended:
        count = counted(len(cancelling.ended), "move")
        first = min(cancelling.ended)
        echo(f"millstream: {count} had ended already, as that of {first}", err=True)
    others = cancelling.ended | cancelling.refused.keys()
    undone = [move for move in moving if move.where not in others]
    done = f"cancelled the move of {counted(len(undone), 'partition')}"
    print_outcome(done, moves_as_json(undone), as_json=as_json)
    patiently(bootstrap, remove_unused_throttle)
    cancelling.check()


@dataclass(slots=True)
class Cancelling:
    """Moves that are being cancelled: one that cannot be holds up no others."""

    # Those without a final answer.
    left: list[TopicPartition]
    # Those that nobody had to cancel any more.
    ended: set[TopicPartition] = field(default_factory=set)
    # Those that cannot be cancelled, and why.
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    _is_repeated: bool = False

    def step(self, cluster: Cluster) -> None:
        """Raises NotNow if some have to be asked for again."""
        is_repeated, self._is_repeated = self._is_repeated, True
        refusals = cancel_moves(cluster, self.left)
        self.left = [where for where, one in refusals.items() if one.code in NOT_NOW]
        for where, refusal in refusals.items():
            if refusal.code in _ENDED:
                # A repeated request finds that the first one was carried out.
                if not is_repeated:
                    self.ended.add(where)
            elif where not in self.left:
                self.refused[where] = refusal.reason
        if self.left:
            raise NotNow(refusals[self.left[0]].reason)

    def give_up(self, reason: str) -> None:
        """The cluster could not cancel the rest for too long."""
        self.refused.update(dict.fromkeys(self.left, reason))

    def check(self) -> None:
        """Raises CommandFailed for what was not cancelled."""
        if not self.refused:
            return
        where, reason = next(iter(self.refused.items()))
        count = len(self.refused)
        others = f"; nor can {counted(count - 1, 'other move')}" if count > 1 else ""
        raise CommandFailed(
            f"the move of {where} cannot be cancelled: {reason}{others}. What is not cancelled goes"
            " on: let it end, or cancel it again later"
        )


def show_cancelled(moves: Sequence[Move]) -> None:
    """The moves that would be undone, and where the partitions return to."""
    print_table(
        ["TOPIC", "PARTITION", "MOVING-TO", "BACK-TO"],
        [
            (move.where.topic, move.where.partition, joined(move.after), joined(move.before))
            for move in moves
        ],
    )


def _named(view: ClusterView, places: tuple[str, ...]) -> list[TopicPartition]:
    return chosen(view, places) if places else list(view.partitions)


def chosen(view: ClusterView, places: tuple[str, ...]) -> list[TopicPartition]:
    """Partitions named as `TOPIC` or `TOPIC:PARTITION`. Raises CommandFailed."""
    found: list[TopicPartition] = []
    for text in places:
        topic, colon, number = text.rpartition(":")
        if not colon:
            some = [where for where in view.partitions if where.topic == text]
        else:
            some = [
                where
                for where in view.partitions
                if where.topic == topic and str(where.partition) == number
            ]
        if not some:
            raise CommandFailed(f"there is no {text}. `millstream topic list` shows the topics")
        found += some
    return list(dict.fromkeys(found))


def parse_nodes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise CommandFailed(
            f"{text!r}: write the ids of nodes with commas, as 1,2,3", exit_code=ExitCode.USAGE
        ) from None


def read_plan(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """`{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`."""
    try:
        rows = json.loads(path.read_text())["partitions"]
        return {
            TopicPartition(str(row["topic"]), int(row["partition"])): tuple(
                int(node) for node in row["replicas"]
            )
            for row in rows
        }
    except (ValueError, KeyError, TypeError) as problem:
        raise CommandFailed(
            f'{path} is no plan: {problem!r}. It looks like {{"partitions": [{{"topic": "t",'
            ' "partition": 0, "replicas": [1, 2]}]}',
            exit_code=ExitCode.USAGE,
        ) from None


def planned(
    view: ClusterView,
    wanted: dict[TopicPartition, tuple[int, ...]],
    sizes: dict[TopicPartition, int],
) -> list[Move]:
    """Raises CommandFailed for what no cluster would accept."""
    moves = []
    for where, replicas in wanted.items():
        state = view.partitions.get(where)
        if state is None:
            raise CommandFailed(f"there is no partition {where}")
        unknown = [node for node in replicas if node not in view.nodes]
        if unknown:
            alive = ", ".join(map(str, sorted(view.nodes)))
            raise CommandFailed(f"{where}: node {unknown[0]} is not alive; alive are {alive}")
        if len(set(replicas)) < len(replicas) or not replicas:
            raise CommandFailed(f"{where}: {list(replicas)} names a node twice, or none")
        if state.is_moving or replicas != state.replicas:
            moves.append(Move(where, state.before, replicas, sizes.get(where, 0)))
    return moves
