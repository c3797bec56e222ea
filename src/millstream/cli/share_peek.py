"""`millstream share peek`: what is in flight, waits and is retried, without acquiring anything."""

import time

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.connection import Cluster
from millstream.cli.names import GROUP
from millstream.cli.output import JsonValue, echo, print_json, print_table
from millstream.cli.share_view import describe_share_group, peek_share_group
from millstream.cli.watching import print_again, watch_option
from millstream.client.share_queue import QueuePartition


@click.command()
@click.argument("group_id", type=GROUP, metavar="GROUP")
@click.option("--ranges", "shows_ranges", is_flag=True, help="Show ranges of offsets in flight.")
@watch_option
@json_option
@bootstrap_option
def peek(
    group_id: str, shows_ranges: bool, watch_seconds: float | None, as_json: bool, bootstrap: str
) -> None:
    """Show what a share group has in flight, and what waits, without acquiring anything.

    Records before START are finished; NEXT was never delivered, nor what is after it. RETRIED
    records were given back, or their lock is over. DYING ones wait for their dead letter. OLDEST
    is the age of the first record that is not finished.

    Apache Kafka tells only START; `share lag` shows how many records are not finished.
    """
    with Cluster(bootstrap) as cluster:
        describe_share_group(cluster, group_id)
        print_again(lambda: _show(cluster, group_id, shows_ranges, as_json), watch_seconds)


def _show(cluster: Cluster, group_id: str, shows_ranges: bool, as_json: bool) -> None:
    rows = peek_share_group(cluster, group_id)
    if as_json:
        print_json([_as_json(row) for row in rows])
        return
    if shows_ranges:
        _print_ranges(rows)
        return
    now_ms = time.time() * 1000
    print_table(
        (
            *("TOPIC", "PARTITION", "START", "NEXT", "END", "IN-FLIGHT", "RETRIED", "WAITING"),
            *("DELAYED", "DYING", "OLDEST"),
        ),
        [
            (
                *(row.where.topic, row.where.partition, row.start, row.next, row.end),
                *(row.in_flight, row.retried, row.waiting, row.delayed, row.dying),
                None if row.oldest_ms is None else _age_text(now_ms - row.oldest_ms),
            )
            for row in rows
        ],
    )
    if any(row.in_flight is None for row in rows):
        echo("the cluster does not tell what is in flight: it is Apache Kafka", err=True)


def _print_ranges(rows: list[QueuePartition]) -> None:
    print_table(
        ("TOPIC", "PARTITION", "FIRST", "LAST", "STATE", "DELIVERIES", "SECONDS-LEFT", "MEMBER"),
        [
            (
                *(row.where.topic, row.where.partition, one.first, one.last, one.state),
                one.deliveries,
                None if one.left_ms is None else f"{one.left_ms / 1000:.1f}",
                one.member_id,
            )
            for row in rows
            for one in row.ranges
        ],
    )


def _age_text(milliseconds: float) -> str:
    seconds = max(int(milliseconds // 1000), 0)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _as_json(row: QueuePartition) -> JsonValue:
    return {
        "topic": row.where.topic,
        "partition": row.where.partition,
        "start": row.start,
        "next": row.next,
        "end": row.end,
        "in_flight": row.in_flight,
        "retried": row.retried,
        "waiting": row.waiting,
        "delayed": row.delayed,
        "dying": row.dying,
        "oldest_ms": row.oldest_ms,
        "ranges": [
            {
                "first": one.first,
                "last": one.last,
                "state": one.state,
                "deliveries": one.deliveries,
                "member_id": one.member_id,
                "left_ms": one.left_ms,
            }
            for one in row.ranges
        ],
    }
