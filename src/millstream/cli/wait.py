"""`millstream wait`: until a broker answers."""

import time
from collections.abc import Callable
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import print_json
from millstream.cli.topic_view import find_topic

_STEP_SECONDS: Final = 0.1


@click.command("wait")
@click.option("--timeout", "seconds_max", type=click.FloatRange(0), default=30.0, show_default=True)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Alive nodes.")
@click.option("-t", "--topic", "topics", multiple=True, help="A topic that must exist.")
@json_option
@bootstrap_option
def wait(
    seconds_max: float, nodes: int, topics: tuple[str, ...], as_json: bool, bootstrap: str
) -> None:
    """Wait until a broker answers, and exit with 3 if none does in time.

    Example: millstream wait --timeout 60 --topic orders
    """
    started_at = time.monotonic()
    deadline = started_at + seconds_max
    problem = attempt_until(
        lambda: _check(bootstrap, nodes, topics),
        is_over=lambda: time.monotonic() >= deadline,
        pause=lambda: time.sleep(_STEP_SECONDS),
    )
    if problem is not None:
        raise CommandFailed(
            f"not ready in {seconds_max:g} s: {problem}", exit_code=ExitCode.TIMEOUT
        )
    if as_json:
        seconds = round(time.monotonic() - started_at, 3)
        print_json({"bootstrap": bootstrap, "seconds": seconds})


def attempt_until(
    check: Callable[[], None], *, is_over: Callable[[], bool], pause: Callable[[], None]
) -> CommandFailed | None:
    """The last failure of `check`, or None as soon as it succeeds. Wrong usage is not retried."""
    while True:
        try:
            check()
        except CommandFailed as failed:
            if failed.exit_code == ExitCode.USAGE:
                raise
            if is_over():
                return failed
        else:
            return None
        pause()


def _check(bootstrap: str, nodes: int, topics: tuple[str, ...]) -> None:
    with Cluster(bootstrap) as cluster:
        alive = len(cluster.live_nodes())
        if alive < nodes:
            raise CommandFailed(f"{alive} of {nodes} nodes are alive")
        for name in topics:
            topic = find_topic(cluster, name)
            if any(partition.leader_id < 0 for partition in topic.partitions):
                raise CommandFailed(f"topic {name} has a partition without a leader")
