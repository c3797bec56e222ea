"""`millstream share dead`: dead letters with their reasons, and sending their records again."""

from datetime import UTC, datetime
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.group_view import committed_offsets
from millstream.cli.names import GROUP, TOPIC
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.cli.share_letters import Letter, Offsets, read_letters
from millstream.cli.share_retry import SendingAgain, retried_group, unsent
from millstream.cli.share_view import describe_share_group
from millstream.cli.topic_view import find_topic
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

_GROUP_RESOURCE: Final = 32
_OPTION: Final = "errors.deadletterqueue.topic.name"
_SHOWN: Final = 100


@click.command()
@click.argument("group_id", type=GROUP, metavar="GROUP")
@click.option("-t", "--topic", type=TOPIC, help="Default: the group's topic for dead letters.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    help="The newest, by default 100; with --retry the oldest, by default all.",
)
@click.option(
    "--retry",
    "is_retried",
    is_flag=True,
    help="Send the records to their topics again, except those that were sent before.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def dead(
    group_id: str,
    topic: str | None,
    count: int | None,
    is_retried: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Show the dead letters of a share group: which records died, and why.

    With --retry their records are sent to the same partitions again, for all groups that read
    them, the oldest first. The letters stay; a consumer group, GROUP.retried, keeps how far they
    were sent. So every record is sent once, however often the command runs. To send records
    again, reset that group or delete it.

    Example: millstream share dead workers -n 10
    """
    with Cluster(bootstrap) as cluster:
        if topic is None:
            describe_share_group(cluster, group_id)
            topic = _topic_of(cluster, group_id)
        find_topic(cluster, topic)
        sent = _sent_before(cluster, group_id, is_needed=is_retried)
    letters = read_letters(bootstrap, topic, group_id)
    if is_retried:
        found = unsent(letters, sent)[:count]
        if found and not yes:
            confirm(f"Send {counted(len(found), 'record')} again?", "sending records again")
        found = SendingAgain(bootstrap, group_id).send(found) if found else []
    else:
        found = sorted(letters, key=lambda one: one.written_ms)[-(count or _SHOWN) :]
    if as_json:
        print_json([_as_json(one, is_retried or one.is_before(sent)) for one in found])
    elif is_retried:
        echo(f"sent {counted(len(found), 'record')} again", err=True)
    else:
        _print(found, sent, f"{counted(len(found), 'dead letter')} of {group_id} in {topic}")


def _sent_before(cluster: Cluster, group_id: str, *, is_needed: bool) -> Offsets:
    """Up to where records were sent again. Who only looks at letters needs no permission for the
    group that keeps it."""
    try:
        return committed_offsets(cluster, retried_group(group_id))
    except CommandFailed as failed:
        if is_needed or failed.exit_code is not ExitCode.FAILED:
            raise
        echo(f"not known which records were sent again: {failed}", err=True)
        return {}


def _topic_of(cluster: Cluster, group_id: str) -> str:
    resource = DescribeConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group_id, configuration_keys=[_OPTION]
    )
    request = DescribeConfigsRequest(resources=[resource])
    [answer] = cluster.ask(cluster.first, request).results
    check(answer.error_code, f"group {group_id}", answer.error_message)
    found = next((one.value for one in answer.configs if one.name == _OPTION), None)
    if not found:
        raise CommandFailed(
            f"share group {group_id} has no topic for dead letters: set its {_OPTION}, "
            "or name a topic with --topic"
        )
    return found


# -- printing -------------------------------------------------------------------------------


def _print(found: list[Letter], sent: Offsets, summary: str) -> None:
    print_table(
        ("TOPIC", "PARTITION", "OFFSET", "DELIVERIES", "WHEN", "RETRIED", "REASON"),
        [
            (
                *(one.where.topic, one.where.partition, one.offset, one.deliveries),
                _when(one.written_ms),
                "yes" if one.is_before(sent) else "no",
                one.reason,
            )
            for one in found
        ],
    )
    echo(summary, err=True)


def _when(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_json(one: Letter, is_retried: bool) -> JsonValue:
    return {
        "topic": one.where.topic,
        "partition": one.where.partition,
        "offset": one.offset,
        "deliveries": one.deliveries,
        "reason": one.reason,
        "timestamp_ms": one.written_ms,
        "is_copy": one.is_copy,
        "is_retried": is_retried,
        "letter_partition": one.letter.partition,
        "letter_offset": one.letter.offset,
    }
