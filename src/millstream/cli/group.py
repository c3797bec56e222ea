"""`millstream group`: list, describe, lag, reset, delete."""

from collections.abc import Sequence

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.confirming import ask_before_deleting
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed
from millstream.cli.group_lag import print_lag
from millstream.cli.group_view import (
    Group,
    GroupMissing,
    Position,
    describe_group,
    is_alive,
    list_groups,
    positions,
    when_ready,
)
from millstream.cli.lazy import AliasGroup, LazyCommand
from millstream.cli.names import GROUP
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.cli.watching import print_again, watch_option
from millstream.errors import KafkaCode
from millstream.wire.apis.delete_groups import DeleteGroupsRequest

_COMMANDS = {
    "reset": LazyCommand(
        "millstream.cli.group_reset", "reset", "Make a group read from other offsets."
    ),
}


_KINDS = ("classic", "consumer", "share", "streams")


@click.group(cls=AliasGroup, table=_COMMANDS)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Stable, for example.")
@click.option("--type", "kinds", multiple=True, type=click.Choice(_KINDS))
@json_option
@bootstrap_option
def list_command(
    states: tuple[str, ...], kinds: tuple[str, ...], as_json: bool, bootstrap: str
) -> None:
    """List groups, their types and states."""
    with Cluster(bootstrap) as cluster:
        found = list_groups(cluster, states=states, kinds=kinds)
    names = ("group", "type", "state", "protocol_type")
    rows = [(one.group_id, one.kind, one.state, one.protocol_type) for one in found]
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    headings = [name.upper().replace("_", "-") for name in names]
    print_table(headings, [[cell or None for cell in row] for row in rows])


@group.command()
@click.argument("group_id", type=GROUP, metavar="GROUP")
@json_option
@bootstrap_option
def describe(group_id: str, as_json: bool, bootstrap: str) -> None:
    """Show a group's members, and its position in each partition.

    LAG is the number of offsets between the group's commit and the end of the partition.
    """
    with Cluster(bootstrap) as cluster:
        found = describe_group(cluster, group_id)
        rows = positions(cluster, found)
    if as_json:
        print_json(_as_json(found, rows))
        return
    headings = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST", "MEMBER")
    print_table(headings, [_cells(found, row) for row in rows])
    idle = [member for member in found.members if not member.partitions]
    assignor = f" ({found.assignor})" if found.assignor else ""
    echo(
        f"{group_id} is a {found.kind} group{assignor}: {found.state},"
        f" {counted(len(found.members), 'member')}"
        + (f", {len(idle)} without a partition" if idle else ""),
        err=True,
    )


def _cells(found: Group, row: Position) -> list[object]:
    owner = found.owner(row.where)
    who = (owner.client_id, owner.client_host, owner.member_id) if owner else (None, None, None)
    return [row.where.topic, row.where.partition, row.committed, row.end, row.lag, *who]


def _as_json(found: Group, rows: list[Position]) -> JsonValue:
    return {
        "group": found.group_id,
        "type": found.kind,
        "state": found.state,
        "assignor": found.assignor or None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
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
                "committed": row.committed,
                "end": row.end,
                "lag": row.lag,
            }
            for row in rows
        ],
    }


@group.command()
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
    """Show the lag of groups, by topic; without a GROUP, of all groups.

    With --watch and --max it ends as soon as the lag is larger.
    """
    with Cluster(bootstrap) as cluster:
        print_again(lambda: _show_lag(cluster, group_ids, lag_max, as_json), watch_seconds)


def _with_offsets(cluster: Cluster) -> list[str]:
    """All groups but share groups, which have no commits: `millstream share` shows them."""
    return [one.group_id for one in list_groups(cluster) if one.kind != "share"]


def _show_lag(
    cluster: Cluster, group_ids: tuple[str, ...], lag_max: int | None, as_json: bool
) -> None:
    totals: dict[tuple[str, str], int] = {}
    for name in group_ids or _with_offsets(cluster):
        for row in positions(cluster, describe_group(cluster, name)):
            key = (name, row.where.topic)
            totals[key] = totals.get(key, 0) + (row.lag or 0)
    print_lag(totals, lag_max, "behind", as_json=as_json)


@group.command()
@click.argument("group_ids", type=GROUP, metavar="GROUP...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def delete(group_ids: tuple[str, ...], yes: bool, as_json: bool, bootstrap: str) -> None:
    """Delete groups that have no members, with their committed offsets."""
    if not yes:
        ask_before_deleting("groups", group_ids, "their committed offsets")
    with Cluster(bootstrap) as cluster:
        delete_groups(cluster, group_ids, as_json=as_json)


def delete_groups(cluster: Cluster, group_ids: Sequence[str], *, as_json: bool) -> None:
    """Of any kind. Raises CommandFailed for those that cannot be deleted, after the others are."""
    failures = []
    for name in group_ids:
        try:
            _delete(cluster, name)
            if not as_json:
                echo(f"deleted group {name}", err=True)
        except CommandFailed as failed:
            failures.append(str(failed))
    if failures:
        raise CommandFailed("; ".join(failures))
    if as_json:
        print_json([{"group": name} for name in group_ids])


def _delete(cluster: Cluster, name: str) -> None:
    node = cluster.group_coordinator(name)
    answer = when_ready(
        lambda: cluster.ask(node, DeleteGroupsRequest(groups_names=[name]), 2),
        lambda answer: answer.results[0].error_code,
    )
    code = answer.results[0].error_code
    if code == KafkaCode.GROUP_ID_NOT_FOUND:
        raise GroupMissing(name)
    if code == KafkaCode.NON_EMPTY_GROUP:
        raise is_alive(name)
    check(code, f"group {name}")
