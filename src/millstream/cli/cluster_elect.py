"""`millstream cluster elect`: have the preferred replicas lead, or any that is alive.

The controller gets some partitions at a time, so clients of a large cluster do not look for
thousands of leaders at once. A command that was ended goes on when it is run again: partitions that
have their leader are not elected twice.
"""

import time
from collections.abc import Sequence
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.cluster_reassign import chosen
from millstream.cli.cluster_view import (
    ClusterView,
    PartitionView,
    controller_of,
    first_look,
    patiently,
    time_text,
    view_of,
)
from millstream.cli.confirming import confirm
from millstream.cli.connection import check
from millstream.cli.failure import CommandFailed
from millstream.cli.output import counted, echo, joined, print_json, print_table
from millstream.cli.progress import Progress
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)

_PREFERRED, _UNCLEAN = 0, 1
# As many as the cluster elects at once by itself.
_AT_ONCE: Final = 100
_PAUSE_SECONDS: Final = 0.2


@click.command()
@click.argument("places", nargs=-1, metavar="[TOPIC[:PARTITION]...]")
@click.option(
    "--unclean",
    is_flag=True,
    help="Of partitions without a leader: elect any live replica. Records may be lost.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def elect(places: tuple[str, ...], unclean: bool, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Elect the preferred leaders, of these partitions or of all.

    The preferred leader is the first replica. The cluster does this by itself every five
    minutes (leader.imbalance.check.interval.seconds) for nodes that miss more than 10 % of
    their leaderships, unless auto.leader.rebalance.enable is false.
    """
    view = first_look(bootstrap, view_of)
    wanted = needing(view, chosen(view, places) if places else list(view.partitions), unclean)
    states = [view.partitions[where] for where in wanted]
    if not as_json:
        _show(states)
    if wanted:
        _elect(bootstrap, wanted, unclean=unclean, yes=yes, as_json=as_json)
    if as_json:
        print_json(
            [
                {
                    "topic": state.where.topic,
                    "partition": state.where.partition,
                    "leader": state.leader,
                    "replicas": list(state.replicas),
                    "in_sync": list(state.in_sync),
                }
                for state in states
            ]
        )


def _show(states: list[PartitionView]) -> None:
    if not states:
        echo("no partition needs an election", err=True)
        return
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC"],
        [
            (
                state.where.topic,
                state.where.partition,
                "none" if state.leader < 0 else state.leader,
                joined(state.replicas),
                joined(state.in_sync) or "none",
            )
            for state in states
        ],
    )


def _elect(
    bootstrap: str, wanted: list[TopicPartition], *, unclean: bool, yes: bool, as_json: bool
) -> None:
    """Ask, elect, and raise CommandFailed if a partition did not get the leader."""
    if not yes:
        loss = " Records that the new leaders do not have are lost." if unclean else ""
        confirm(f"Elect leaders of {counted(len(wanted), 'partition')}?{loss}", "electing leaders")
    problems = _elect_all(bootstrap, wanted, _UNCLEAN if unclean else _PREFERRED)
    if not as_json:
        echo(f"elected {counted(len(wanted) - len(problems), 'leader')}", err=True)
        for problem in problems:
            echo(f"millstream: {problem}", err=True)
    if problems:
        raise CommandFailed(
            f"{counted(len(problems), 'partition')} could not get the leader, as {problems[0]}. A"
            " replica that is not in sync cannot lead: `millstream cluster health` says why"
        )


def _elect_all(bootstrap: str, wanted: Sequence[TopicPartition], kind: int) -> list[str]:
    """What became of the partitions that did not get the leader."""
    problems: list[str] = []
    progress = Progress(quiet=False)
    began = time.monotonic()
    try:
        for done in range(0, len(wanted), _AT_ONCE):
            if done:
                seconds = time.monotonic() - began
                progress.show(lambda: _text(done, len(wanted), seconds))  # noqa: B023  # at once
                time.sleep(_PAUSE_SECONDS)
            problems += failures(_ask(bootstrap, wanted[done : done + _AT_ONCE], kind))
    finally:
        progress.stop()
    return problems


def _text(done: int, count: int, seconds: float) -> str:
    left = time_text(seconds / done * (count - done))
    return f"{done} of {count} partitions have had their election, about {left} left"


def needing(view: ClusterView, places: list[TopicPartition], unclean: bool) -> list[TopicPartition]:
    """The partitions for which an election would change something."""
    states = [view.partitions[where] for where in places]
    if unclean:
        return [one.where for one in states if one.leader < 0]
    return [one.where for one in states if one.leader != one.target[0]]


def _ask(bootstrap: str, wanted: Sequence[TopicPartition], kind: int) -> ElectLeadersResponse:
    topics: dict[str, list[int]] = {}
    for where in wanted:
        topics.setdefault(where.topic, []).append(where.partition)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            ElectLeadersTopic(topic=name, partitions=some) for name, some in topics.items()
        ],
    )
    answer = patiently(bootstrap, lambda cluster: cluster.ask(controller_of(cluster), request))
    check(answer.error_code, "election")
    return answer


def failures(answer: ElectLeadersResponse) -> list[str]:
    """What became of the partitions that did not get the leader."""
    return [
        f"{topic.topic}-{one.partition_id}: {one.error_message or KafkaCode(one.error_code).name}"
        for topic in answer.replica_election_results
        for one in topic.partition_result
        if one.error_code not in (KafkaCode.NONE, KafkaCode.ELECTION_NOT_NEEDED)
    ]
