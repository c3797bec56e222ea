"""`millstream group reset`: makes a group read from other offsets."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.group_view import (
    GroupMissing,
    committed_offsets,
    describe_group,
    is_alive,
    when_ready,
)
from millstream.cli.names import GROUP
from millstream.cli.output import counted, echo, print_json, print_table
from millstream.cli.topic_view import EARLIEST, LATEST, offsets_at
from millstream.client.group_reset import Move, plan_moves
from millstream.client.start_position import FromTime, Start, parse_start
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)

C = TypeVar("C", bound=Callable[..., Any])


def reset_options(topics_by_default: str) -> Callable[[C], C]:
    """The arguments of a command that moves a group."""

    def decorate(command: C) -> C:
        for option in (
            click.argument("group_id", type=GROUP, metavar="GROUP"),
            click.option(
                "--to",
                "start_text",
                required=True,
                metavar="START",
                help="beginning, end, N, -N (last N of each partition), @TIME (@2026-01-31, @-1h).",
            ),
            click.option(
                "-t",
                "--topic",
                "topics",
                multiple=True,
                metavar="TOPIC[:PARTITION,...]",
                help=f"Only these; default: all that the group has {topics_by_default}.",
            ),
            click.option("--dry-run", is_flag=True, help="Only show what would change."),
            click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
            json_option,
            bootstrap_option,
        )[::-1]:
            command = option(command)
        return command

    return decorate


@click.command()
@reset_options("committed")
def reset(
    group_id: str,
    start_text: str,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Move a group to other offsets: its consumers then read from there.

    The group must have no members, except for a dry run. An offset outside a partition becomes
    its nearer end; a time after the last record becomes its end.
    """
    try:
        start = parse_start(start_text, now=datetime.now(UTC))
    except ValueError as wrong:
        raise click.UsageError(f"--to: {wrong}") from None
    with Cluster(bootstrap) as cluster:
        members = _member_count(cluster, group_id, may_be_new=bool(topics))
        if members and not dry_run:
            raise is_alive(group_id, members)
        committed = committed_offsets(cluster, group_id)
        places = named_partitions(cluster, topics) if topics else sorted(committed)
        moves = planned_moves(cluster, places, committed, start)
        if not moves:
            raise CommandFailed(f"group {group_id} has no committed offsets; name a --topic")
        if not dry_run and not yes:
            where = counted(len(moves), "partition")
            confirm(f"Move {group_id} to {start_text} on {where}?", "resetting a group")
        if not dry_run:
            _commit(cluster, group_id, moves)
    print_moves(group_id, moves, dry_run=dry_run, as_json=as_json)


def print_moves(group_id: str, moves: Sequence[Move], *, dry_run: bool, as_json: bool) -> None:
    names = ("topic", "partition", "before", "after", "end")
    rows = [(m.where.topic, m.where.partition, m.before, m.after, m.end) for m in moves]
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        headings = [name.upper() for name in names]
        print_table(headings, rows)
        done = "would move" if dry_run else "moved"
        echo(f"{done} {group_id} on {counted(len(moves), 'partition')}", err=True)


def _member_count(cluster: Cluster, group_id: str, *, may_be_new: bool) -> int:
    try:
        return len(describe_group(cluster, group_id).members)
    except GroupMissing:
        if may_be_new:
            return 0
        raise


def named_partitions(cluster: Cluster, topics: Sequence[str]) -> list[TopicPartition]:
    """Partitions named as `orders` or `orders:0,2`. Raises CommandFailed."""
    found: list[TopicPartition] = []
    for text in topics:
        name, _, numbers = text.partition(":")
        [topic] = cluster.metadata(name).topics
        if topic.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandFailed(
                f"topic {name} does not exist. `millstream topic list` shows the existing ones"
            )
        check(topic.error_code, f"topic {name}")
        present = sorted(one.partition_index for one in topic.partitions)
        found += [TopicPartition(name, number) for number in _chosen(text, numbers, present)]
    return sorted(set(found))


def _chosen(text: str, numbers: str, present: list[int]) -> list[int]:
    if not numbers:
        return present
    wanted = [number.strip() for number in numbers.split(",")]
    if not all(number.isdecimal() for number in wanted):
        raise CommandFailed(
            f"{text!r} is not TOPIC or TOPIC:PARTITION,...", exit_code=ExitCode.USAGE
        )
    missing = [number for number in wanted if int(number) not in present]
    if missing:
        raise CommandFailed(f"{text!r}: partition {missing[0]} does not exist")
    return [int(number) for number in wanted]


def planned_moves(
    cluster: Cluster,
    places: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    start: Start,
) -> list[Move]:
    first, end = offsets_at(cluster, places, EARLIEST), offsets_at(cluster, places, LATEST)
    at: Mapping[TopicPartition, int] = {}
    if isinstance(start, FromTime):
        at = offsets_at(cluster, places, start.timestamp_ms)
    return plan_moves(places, committed, start, first=first, end=end, at=at)


def _commit(cluster: Cluster, group_id: str, moves: Sequence[Move]) -> None:
    rows: dict[str, list[OffsetCommitPartition]] = {}
    for move in moves:
        rows.setdefault(move.where.topic, []).append(
            OffsetCommitPartition(
                partition_index=move.where.partition,
                committed_offset=move.after,
                committed_metadata="",
            )
        )
    node = cluster.group_coordinator(group_id)
    answer = when_ready(
        lambda: cluster.ask(
            node,
            OffsetCommitRequest(
                group_id=group_id,
                topics=[OffsetCommitTopic(name=name, partitions=rows[name]) for name in rows],
            ),
            8,
        ),
        lambda answer: answer.topics[0].partitions[0].error_code,
    )
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code == KafkaCode.UNKNOWN_MEMBER_ID:
                raise is_alive(group_id)
            check(one.error_code, f"{topic.name}-{one.partition_index}")
