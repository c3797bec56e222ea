"""Carries out a plan of moves: a few at a time, throttled, with progress, and cancellable.

The cluster itself moves partitions. If this command is killed, the moves that it has started
go on; the same command plans again from what is there, and continues.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import click

from millstream.cli.cluster_throttle import (
    remove_unused_throttle,
    set_throttle,
    topics_throttled_whole,
)
from millstream.cli.cluster_view import (
    ClusterView,
    PartitionView,
    controller_of,
    patiently,
    size_text,
    sizes_on,
    time_text,
    view_of,
)
from millstream.cli.confirming import confirm
from millstream.cli.connection import NOT_NOW, Cluster, check, error_text
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, counted, echo, joined, print_table
from millstream.cli.progress import Progress
from millstream.cluster.rebalancing import Move
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersTopic

POLL_SECONDS: Final = 0.5
# Without a byte for this long, the command says what each move waits for.
STUCK_SECONDS: Final = 20.0
# Nodes of Apache Kafka hear of the end of a move a moment after the controller.
SETTLED_SECONDS: Final = 3.0
_PREFERRED: Final = 0
# The next look shows what has changed meanwhile: the topic was deleted, or a node has died.
_NOT_YET: Final = NOT_NOW | {
    KafkaCode.INVALID_REPLICA_ASSIGNMENT,
    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_INTERFERED: Final = "somebody cancelled it, moved it elsewhere or deleted the topic"
_SHOWN_MAX: Final = 30

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast partitions move: bytes per second and node, and how many at the same time."""

    bytes_per_second: int
    at_once: int


def pace_options(command: F) -> F:
    """Add `--mb-per-second`, `--at-once` and `-y` to a command that moves partitions."""
    command = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(
        command
    )
    command = click.option(
        "--at-once",
        default=10,
        show_default=True,
        type=click.IntRange(1),
        help="How many partitions move at the same time.",
    )(command)
    return click.option(
        "--mb-per-second",
        default=50.0,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        help="The most that each node sends, and receives, for the moves.",
    )(command)


def pace_of(mb_per_second: float, at_once: int) -> Pace:
    return Pace(max(int(mb_per_second * 1e6), 1), at_once)


def show_plan(moves: Sequence[Move], pace: Pace) -> None:
    """A table of the moves, and how much they copy."""
    shown = moves[:_SHOWN_MAX]
    print_table(
        ["TOPIC", "PARTITION", "REPLICAS", "NEW-REPLICAS", "COPIED"],
        [
            (
                move.where.topic,
                move.where.partition,
                joined(move.before),
                joined(move.after),
                size_text(move.copied_bytes) if move.added else "-",
            )
            for move in shown
        ],
    )
    if len(shown) < len(moves):
        echo(f"... and {len(moves) - len(shown)} more")
    copied = sum(move.copied_bytes for move in moves)
    seconds = _busiest_bytes(moves) / pace.bytes_per_second
    echo(
        f"\n{counted(len(moves), 'partition')}, {size_text(copied)} to copy, at least"
        f" {time_text(seconds)} at {size_text(pace.bytes_per_second)}/s per node"
    )
    if whole := topics_throttled_whole(moves):
        echo(
            f"{', '.join(whole)}: too many moves to list. Until they are done, all replicas that"
            " are not in sync are throttled"
        )


def _busiest_bytes(moves: Iterable[Move]) -> int:
    """What the node receives that receives most: the throttle is per node."""
    received: dict[int, int] = {}
    for move in moves:
        for node in move.added:
            received[node] = received.get(node, 0) + move.size_bytes
    return max(received.values(), default=0)


def carry_out(
    bootstrap: str, moves: Sequence[Move], pace: Pace, *, yes: bool, as_json: bool
) -> None:
    """Show the plan, ask, move, and wait until everything is where it should be.

    With `as_json`, the caller prints the moves when they are done."""
    if not as_json:
        show_plan(moves, pace)
    if not yes:
        confirm("Start?", "moving partitions")
    running = Running(bootstrap, moves, pace)
    try:
        summary = running.run()
    except KeyboardInterrupt:
        _say_unwatched(running)
        raise
    except CommandFailed:
        if running.active:
            _say_unwatched(running)
        raise
    if not as_json:
        echo(summary, err=True)
    running.check_undone()


def _say_unwatched(running: "Running") -> None:
    echo(
        f"\nmillstream: stopped watching. {counted(len(running.active), 'move')} in progress"
        " continue, throttled. Run the command again to continue, or"
        " `millstream cluster reassign --cancel` to undo them",
        err=True,
    )


def remove_leftovers(bootstrap: str) -> None:
    """What a command that was killed has not removed: the throttle of moves that are done."""
    topics = patiently(bootstrap, remove_unused_throttle)
    if topics:
        echo(f"removed the throttle of earlier moves of {', '.join(topics)}", err=True)


def moves_as_json(moves: Iterable[Move]) -> JsonValue:
    return [
        {
            "topic": move.where.topic,
            "partition": move.where.partition,
            "replicas": list(move.before),
            "new_replicas": list(move.after),
            "copied_bytes": move.copied_bytes,
        }
        for move in moves
    ]


@dataclass(slots=True)
class Running:
    """Moves that this command starts and watches."""

    bootstrap: str
    moves: Sequence[Move]
    pace: Pace
    # What is not started yet, in order.
    pending: list[Move] = field(default_factory=list)
    active: dict[TopicPartition, Move] = field(default_factory=dict)
    # Why partitions are not where they should be: mostly, somebody else interfered.
    undone: dict[TopicPartition, str] = field(default_factory=dict)
    # What the cluster said of moves that it could not start yet.
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    done_bytes: int = 0
    # What an earlier run of the command had copied when this one looked first, and when that was.
    _first_bytes: int = -1
    _first_at: float = 0.0
    # When a move was first seen to have ended in an unexpected way.
    _ended_at: dict[TopicPartition, float] = field(default_factory=dict)
    _progressed_at: float = 0.0
    _last_bytes: int = -1

    def run(self) -> str:
        """Returns a summary."""
        self.pending = list(self.moves)
        started_at = self._progressed_at = time.monotonic()
        progress = Progress(quiet=False)
        patiently(self.bootstrap, self._set_throttle)
        try:
            while True:
                moving = patiently(self.bootstrap, self.step)
                if not self.active and not self.pending:
                    break
                copied = self.done_bytes + moving
                now = time.monotonic()
                progress.show(lambda copied=copied, now=now: self.text(copied, now))  # type: ignore[misc]  # bound now
                self._explain_if_stuck(copied)
                time.sleep(POLL_SECONDS)
        finally:
            progress.stop()
        patiently(self.bootstrap, lambda cluster: elect_preferred(cluster, self.moves))
        patiently(self.bootstrap, self._remove_throttle)
        seconds = time.monotonic() - started_at
        moved = counted(len(self.moves) - len(self.undone), "partition")
        copied = max(self.done_bytes - max(self._first_bytes, 0), 0)
        return f"moved {moved}, {size_text(copied)} copied in {time_text(seconds)}"

    def check_undone(self) -> None:
        """Raises CommandFailed if the cluster refused moves, or somebody interfered with them."""
        if self.undone:
            where, reason = next(iter(self.undone.items()))
            raise CommandFailed(
                f"{counted(len(self.undone), 'move')} did not end as planned, as that of"
                f" {where}: {reason}. Run the command again to plan again"
            )

    def step(self, cluster: Cluster) -> int:
        """Start what may start; the bytes that arrived for the moves in progress."""
        view = view_of(cluster)
        now = time.monotonic()
        if self._first_bytes < 0:
            before = [move for move in self.moves if view.is_moving(move.where)]
            self.begin_estimate(_arrived_bytes(cluster, view, before), now)
        self.settle(view, now)
        self._start(cluster, self._ready(view))
        return _arrived_bytes(cluster, view, self.active.values())

    def _ready(self, view: ClusterView) -> list[Move]:
        """What may start now. Those that were refused come last, so they hold up no others."""
        room = max(self.pace.at_once - len(self.active), 0)
        # The cluster refuses a node that is not alive; it may just be restarting.
        ready = [move for move in self.pending if view.nodes.keys() >= set(move.after)]
        return sorted(ready, key=lambda move: move.where in self.refused)[:room]

    def _start(self, cluster: Cluster, starting: Sequence[Move]) -> None:
        """One that cannot start yet stays pending; one that never can is left out."""
        if not starting:
            return
        # If the controller has just died, this raises, and the next step starts them.
        refusals = start_moves(cluster, starting)
        for move in starting:
            refusal = refusals.get(move.where)
            if refusal is not None and refusal.code in _NOT_YET:
                self.refused[move.where] = refusal.reason
                continue
            self.pending.remove(move)
            self.refused.pop(move.where, None)
            if refusal is None:
                self.active[move.where] = move
            else:
                self.undone[move.where] = refusal.reason

    def settle(self, view: ClusterView, now: float) -> None:
        """Take out what has ended, and what cannot begin."""
        for move in list(self.pending):
            if move.where not in view.partitions:
                self.pending.remove(move)
                self.refused.pop(move.where, None)
                self.undone[move.where] = _INTERFERED
        for where, move in list(self.active.items()):
            state = view.partitions.get(where)
            if state is not None and state.is_moving:
                self._ended_at.pop(where, None)
            elif state is not None and state.replicas == move.after:
                del self.active[where]
                self.done_bytes += move.copied_bytes
            elif now - self._ended_at.setdefault(where, now) >= SETTLED_SECONDS:
                del self.active[where]
                self.undone[where] = _INTERFERED

    def _set_throttle(self, cluster: Cluster) -> None:
        set_throttle(cluster, self.moves, self.pace.bytes_per_second)

    def _remove_throttle(self, cluster: Cluster) -> None:
        remove_unused_throttle(cluster, moves=self.moves)

    def begin_estimate(self, copied: int, now: float) -> None:
        self._first_bytes, self._first_at = copied, now

    def text(self, copied: int, now: float) -> str:
        """How far the moves are, and how long the rest takes at the rate seen since the start."""
        total = sum(move.copied_bytes for move in self.moves)
        left = len(self.pending) + len(self.active)
        text = (
            f"{len(self.moves) - left} of {counted(len(self.moves), 'partition')} moved,"
            f" {size_text(copied)} of {size_text(total)}"
        )
        if total > copied > self._first_bytes:
            rate = (copied - self._first_bytes) / (now - self._first_at)
            text += f", {time_text((total - copied) / rate)} left"
        return text

    def _explain_if_stuck(self, copied: int) -> None:
        now = time.monotonic()
        if copied != self._last_bytes:
            self._last_bytes, self._progressed_at = copied, now
        elif now - self._progressed_at > STUCK_SECONDS:
            self._progressed_at = now
            view = patiently(self.bootstrap, view_of)
            reasons = explained(view, self.active.values() or self.pending, self.pace)
            refused = [f"{where} cannot start: {said}" for where, said in self.refused.items()]
            for reason in [*reasons, *refused[:1]]:
                echo(f"millstream: waiting: {reason}", err=True)


def _arrived_bytes(cluster: Cluster, view: ClusterView, moves: Collection[Move]) -> int:
    """What the new replicas of these moves have."""
    wanted = {node for move in moves for node in move.added}
    sizes = {node: sizes_on(cluster, view.nodes[node]) for node in wanted & view.nodes.keys()}
    return sum(
        min(sizes[node].get(move.where, 0), move.size_bytes)
        for move in moves
        for node in move.added
        if node in sizes
    )


def explained(view: ClusterView, moves: Iterable[Move], pace: Pace) -> list[str]:
    """What moves wait for that make no progress."""
    found: dict[str, int] = {}
    for move in moves:
        state = view.partitions.get(move.where)
        reason = _reason(view, move, state, pace)
        found[reason] = found.get(reason, 0) + 1
    return [
        reason if count == 1 else f"{reason} (and {count - 1} more)"
        for reason, count in found.items()
    ]


def _reason(view: ClusterView, move: Move, state: PartitionView | None, pace: Pace) -> str:
    if state is None:
        return "a topic was deleted"
    gone = [node for node in move.after if node not in view.nodes]
    if gone:
        return f"node {gone[0]} is not alive and should have replicas: start it"
    if state.leader < 0:
        return f"{move.where} has no leader: start one of the nodes {joined(move.before)}"
    behind = [node for node in state.adding if node not in state.in_sync]
    if behind:
        return (
            f"node {behind[0]} has not caught up. If its topics are written faster than"
            f" {size_text(pace.bytes_per_second)}/s, stop this command and run it again with a"
            " higher --mb-per-second; otherwise the node's log says why"
        )
    return f"the controller, node {view.controller_id}, has not completed the move of {move.where}"


# -- requests -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the move of one partition was not started, or not cancelled."""

    code: KafkaCode
    reason: str


def start_moves(cluster: Cluster, moves: Iterable[Move]) -> dict[TopicPartition, Refusal]:
    """Returns the refused ones. The others have started."""
    return _alter(cluster, {move.where: list(move.after) for move in moves})


def cancel_moves(
    cluster: Cluster, places: Iterable[TopicPartition]
) -> dict[TopicPartition, Refusal]:
    """Returns the refused ones. The others are cancelled."""
    return _alter(cluster, dict.fromkeys(places))


def _alter(
    cluster: Cluster, wanted: Mapping[TopicPartition, list[int] | None]
) -> dict[TopicPartition, Refusal]:
    topics: dict[str, list[ReassignablePartition]] = {}
    for where, replicas in wanted.items():
        topics.setdefault(where.topic, []).append(
            ReassignablePartition(partition_index=where.partition, replicas=replicas)
        )
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=some) for name, some in topics.items()]
    )
    answer = cluster.ask(controller_of(cluster), request)
    check(answer.error_code, "reassignment", answer.error_message)
    refused: dict[TopicPartition, Refusal] = {}
    for topic in answer.responses:
        for one in topic.partitions:
            if one.error_code != KafkaCode.NONE:
                where = TopicPartition(topic.name, one.partition_index)
                reason = error_text(one.error_code, one.error_message)
                refused[where] = Refusal(KafkaCode(one.error_code), reason)
    return refused


def elect_preferred(cluster: Cluster, moves: Iterable[Move]) -> None:
    """The first replicas lead what was moved, as far as they can."""
    topics: dict[str, list[int]] = {}
    for move in moves:
        if move.before[0] != move.after[0]:
            topics.setdefault(move.where.topic, []).append(move.where.partition)
    if not topics:
        return
    request = ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=[
            ElectLeadersTopic(topic=name, partitions=some) for name, some in topics.items()
        ],
    )
    check(cluster.ask(controller_of(cluster), request).error_code, "election")
