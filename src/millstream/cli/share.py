"""`millstream share`: list, describe, lag, peek, dead, reset, delete."""

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.confirming import ask_before_deleting
from millstream.cli.connection import Cluster
from millstream.cli.group import delete_groups
from millstream.cli.group_lag import print_lag
from millstream.cli.group_view import Group
from millstream.cli.lazy import AliasGroup, LazyCommand
from millstream.cli.names import GROUP
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.cli.share_view import (
    SharePosition,
    describe_share_group,
    list_share_groups,
    share_positions,
)
from millstream.cli.watching import print_again, watch_option

_COMMANDS = {
    "peek": LazyCommand(
        "millstream.cli.share_peek", "peek", "Show what is in flight, waits and is retried."
    ),
    "dead": LazyCommand(
        "millstream.cli.share_dead", "dead", "Show dead letters, or send their records again."
    ),
    "reset": LazyCommand(
        "millstream.cli.share_reset", "reset", "Make a share group start at other offsets."
    ),
}


@click.group(cls=AliasGroup, table=_COMMANDS)
def share() -> None:
    """List, describe, reset and delete share groups (queues)."""


@share.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Stable or Empty.")
@json_option
@bootstrap_option
def list_command(states: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """List share groups and their states."""
    with Cluster(bootstrap) as cluster:
        found = list_share_groups(cluster, states)
    if as_json:
        print_json([{"group": one.group_id, "state": one.state} for one in found])
        return
    print_table(("GROUP", "STATE"), [(one.group_id, one.state) for one in found])


@share.command()
@click.argument("group_id", type=GROUP, metavar="GROUP")
@json_option
@bootstrap_option
def describe(group_id: str, as_json: bool, bootstrap: str) -> None:
    """Show a share group's members, and where it is in each partition.

    Records before START are finished. LAG is the number of records that are not: waiting, or
    delivered and not acknowledged.
    """
    with Cluster(bootstrap) as cluster:
        found = describe_share_group(cluster, group_id)
        rows = share_positions(cluster, group_id)
    if as_json:
        print_json(_as_json(found, rows))
        return
    readers = {
        row.where: sum(row.where in member.partitions for member in found.members) for row in rows
    }
    print_table(
        ("TOPIC", "PARTITION", "START", "LAG", "MEMBERS"),
        [
            (row.where.topic, row.where.partition, row.start, row.lag, readers[row.where])
            for row in rows
        ],
    )
    members = counted(len(found.members), "member")
    echo(f"{group_id} is a share group: {found.state}, {members}", err=True)


def _as_json(found: Group, rows: list[SharePosition]) -> JsonValue:
    return {
        "group": found.group_id,
        "state": found.state,
        "assignor": found.assignor,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": [
                    {"topic": where.topic, "partition": where.partition}
                    for where in member.partitions
                ],
            }
            for member in found.members
        ],
        "partitions": [
            {
                "topic": row.where.topic,
                "partition": row.where.partition,
                "start": row.start,
                "lag": row.lag,
            }
            for row in rows
        ],
    }


@share.command()
@click.argument("group_ids", type=GROUP, metavar="[GROUP]...", nargs=-1)
@click.option("--max", "lag_max", type=click.IntRange(0), help="Exit with 1 if the lag is larger.")
@watch_option
@json_option
@bootstrap_option
def lag(
    group_ids: tuple[str, ...],
    lag_max: int | None,
    watch_seconds: float | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Show how many records are not finished, by topic; without a GROUP, of all share groups.

    With --watch and --max it ends as soon as there are more.
    """
    with Cluster(bootstrap) as cluster:
        print_again(lambda: _show_lag(cluster, group_ids, lag_max, as_json), watch_seconds)


def _show_lag(
    cluster: Cluster, group_ids: tuple[str, ...], lag_max: int | None, as_json: bool
) -> None:
    totals: dict[tuple[str, str], int] = {}
    for name in group_ids or [one.group_id for one in list_share_groups(cluster)]:
        if name in group_ids:
            # A group that does not exist is an error, not an empty table.
            describe_share_group(cluster, name)
        for row in share_positions(cluster, name):
            key = (name, row.where.topic)
            totals[key] = totals.get(key, 0) + (row.lag or 0)
    print_lag(totals, lag_max, "left", as_json=as_json)


@share.command()
@click.argument("group_ids", type=GROUP, metavar="GROUP...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def delete(group_ids: tuple[str, ...], yes: bool, as_json: bool, bootstrap: str) -> None:
    """Delete share groups that have no members, with what they know of records."""
    if not yes:
        ask_before_deleting("share groups", group_ids, "what they know of records")
    with Cluster(bootstrap) as cluster:
        for name in group_ids:
            describe_share_group(cluster, name)
        delete_groups(cluster, group_ids, as_json=as_json)
