"""`millstream topic alter` and `add-partitions`."""

import click

from millstream.cli.bootstrap import (
    bootstrap_option,
    bootstrap_option_beside_config,
    json_option,
)
from millstream.cli.cluster_view import TOPIC, controller_of, parse_settings, reassignments
from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.option_changes import change
from millstream.cli.output import echo, print_json, print_outcome, print_table
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from millstream.wire.apis.metadata import MetadataTopic

_TIMEOUT_MS = 15_000


@click.command()
@click.argument("topic")
@click.option("-c", "--config", "settings", multiple=True, metavar="NAME=VALUE")
@click.option(
    "-d", "--delete", "deleted", multiple=True, metavar="NAME", help="Return to the node's value."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option_beside_config
def alter(
    topic: str,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Change options of a topic. Options that are not named stay.

    Shows their values now and then, and asks first.

    Example: millstream topic alter orders -c retention.ms=86400000 -d segment.bytes
    """
    wanted = parse_settings(settings, deleted)
    if not wanted:
        raise CommandFailed("name an option with -c or -d", exit_code=ExitCode.USAGE)
    with Cluster(bootstrap) as cluster:
        change(
            *(cluster, TOPIC, topic, wanted), whose=f"topic {topic}", yes=yes, is_shown=not as_json
        )
    if as_json:
        print_json({"name": topic, "configs": dict(wanted)})
        return
    for name, value in wanted.items():
        echo(
            f"{topic}: {name}={value}" if value is not None else f"{topic}: {name} deleted",
            err=True,
        )


@click.command("add-partitions")
@click.argument("topic")
@click.argument("total", type=click.IntRange(1))
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def add_partitions(topic: str, total: int, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Give a topic more partitions: TOTAL of them.

    Shows how many there are now and then, and asks first. There is no way back. Keys are assigned
    to partitions by their number, so that records with the same key may go to another partition
    from then on.
    """
    with Cluster(bootstrap) as cluster:
        [found] = cluster.metadata(topic).topics
        if found.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandFailed(
                f"topic {topic} does not exist. `millstream topic list` shows the existing ones"
            )
        check(found.error_code, f"topic {topic}")
        present = len(found.partitions)
        if total <= present:
            raise CommandFailed(
                f"topic {topic} has {present} partitions already; partitions cannot be removed"
            )
        if not as_json:
            show_growth(found, total, replicas_of_new(cluster, found))
        if not yes:
            question = f"Give {topic} {total} partitions instead of {present}?"
            confirm(f"{question} This cannot be undone.", "adding partitions")
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)],
            timeout_ms=_TIMEOUT_MS,
            validate_only=False,
        )
        [result] = cluster.ask(cluster.first, request).results
        check(result.error_code, f"topic {topic}", result.error_message)
    print_outcome(
        f"topic {topic} has {total} partitions",
        {"name": topic, "partitions": total},
        as_json=as_json,
    )


def replicas_of_new(cluster: Cluster, topic: MetadataTopic) -> int:
    """As the cluster chooses it: as many as the first partition has, or will have after a move."""
    first = min(topic.partitions, key=lambda each: each.partition_index)
    try:
        moving = reassignments(cluster, controller_of(cluster))
    except CommandFailed:
        # Who may extend a topic may not always see moves. It is only a plan.
        moving = {}
    _, removing = moving.get(TopicPartition(topic.name or "", first.partition_index), ((), ()))
    return len(set(first.replica_nodes) - set(removing))


def show_growth(topic: MetadataTopic, total: int, replicas: int) -> None:
    """The plan: how many partitions there are now and then, and what that does to keys."""
    present = len(topic.partitions)
    print_table(
        ["TOPIC", "NOW", "THEN", "NEW", "REPLICAS-OF-NEW"],
        [(topic.name, present, total, total - present, replicas)],
    )
    echo(
        "\nKeys may go to other partitions than before; records that are there stay where they are"
    )
