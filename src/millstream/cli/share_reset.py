"""`millstream share reset`: makes a share group start at other offsets."""

from datetime import UTC, datetime

import click

from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed
from millstream.cli.group_reset import (
    named_partitions,
    planned_moves,
    print_moves,
    reset_options,
)
from millstream.cli.group_view import is_alive
from millstream.cli.output import counted
from millstream.cli.share_view import (
    ShareGroupMissing,
    describe_share_group,
    set_starts,
    share_positions,
)
from millstream.client.start_position import parse_start


@click.command()
@reset_options("begun to read")
def reset(
    group_id: str,
    start_text: str,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Have a share group start elsewhere: every record from there on is delivered again.

    The group must have no members, except for a dry run. With --topic it may be new: so a group
    gets its start before its first consumer.
    """
    try:
        start = parse_start(start_text, now=datetime.now(UTC))
    except ValueError as wrong:
        raise click.UsageError(f"--to: {wrong}") from None
    with Cluster(bootstrap) as cluster:
        members = _member_count(cluster, group_id, may_be_new=bool(topics))
        if members and not dry_run:
            raise is_alive(group_id, members)
        known = {row.where: row.start for row in share_positions(cluster, group_id)}
        places = named_partitions(cluster, topics) if topics else sorted(known)
        before = {where: offset for where, offset in known.items() if offset is not None}
        moves = planned_moves(cluster, places, before, start)
        if not moves:
            raise CommandFailed(f"share group {group_id} reads no topic yet; name a --topic")
        if not dry_run and not yes:
            where = counted(len(moves), "partition")
            confirm(f"Start {group_id} at {start_text} on {where}?", "resetting a share group")
        if not dry_run:
            set_starts(cluster, group_id, {move.where: move.after for move in moves})
    print_moves(group_id, moves, dry_run=dry_run, as_json=as_json)


def _member_count(cluster: Cluster, group_id: str, *, may_be_new: bool) -> int:
    try:
        return len(describe_share_group(cluster, group_id).members)
    except ShareGroupMissing:
        if may_be_new:
            return 0
        raise
