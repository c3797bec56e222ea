"""`millstream topic trim`: deletes what consumer groups have consumed."""

from dataclasses import dataclass

import click

from millstream.cli.bootstrap import (
    REQUEST_SECONDS_MAX,
    bootstrap_option,
    connect_admin,
    json_option,
    wait_for,
)
from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed
from millstream.cli.group_view import committed_offsets
from millstream.cli.names import TOPIC
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.cli.topic_view import (
    EARLIEST,
    LATEST,
    offsets_at,
    topic_option,
    topic_partitions,
)
from millstream.model import TopicPartition
from millstream.storage.retention import consumed_offset


@dataclass(slots=True)
class Trim:
    """What would be deleted from one partition."""

    partition: int
    start_offset: int
    end_offset: int
    # None: a group has no commit here, and everything stays.
    trim_offset: int | None
    records: int = 0
    size_bytes: int = 0


@click.command()
@click.argument("topic", type=TOPIC)
@click.option(
    "--consumed-by",
    "groups",
    required=True,
    metavar="GROUP[,GROUP]",
    help="Delete what all of these groups have committed.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def trim(topic: str, groups: str, dry_run: bool, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Delete the records that consumer groups have consumed.

    In each partition, deletes what is before the lowest commit of the groups. A group without
    a commit for a partition keeps all its records, and so does a commit beyond its end. Bytes
    are estimates: the partition's size, divided evenly over its offsets.
    """
    names = [name.strip() for name in groups.split(",") if name.strip()]
    if not names:
        raise click.UsageError("--consumed-by names no group")
    with Cluster(bootstrap) as cluster:
        trims = _plan(cluster, topic, names)
        _estimate_bytes(cluster, topic, trims)
    records = sum(each.records for each in trims)
    if not dry_run:
        if not yes:
            confirm(f"Delete {counted(records, 'record')} of {topic}?", "trimming a topic")
        _delete(bootstrap, topic, trims)
    if as_json:
        print_json([_as_json(each) for each in trims])
    else:
        headings = ["PARTITION", "LOG-START-OFFSET", "TRIM-TO", "RECORDS", "BYTES"]
        print_table(headings, [_cells(each) for each in trims])
        done = "would delete" if dry_run else "deleted"
        echo(f"{done} {counted(records, 'record')} of {topic}", err=True)


def _plan(cluster: Cluster, topic: str, groups: list[str]) -> list[Trim]:
    places = [TopicPartition(topic, index) for index in topic_partitions(cluster, topic)]
    if "delete" not in topic_option(cluster, topic, "cleanup.policy"):
        raise CommandFailed(f"topic {topic} has no delete in its cleanup.policy")
    commits = [committed_offsets(cluster, group) for group in groups]
    starts, ends = offsets_at(cluster, places, EARLIEST), offsets_at(cluster, places, LATEST)
    trims = []
    for where in places:
        if where not in starts or where not in ends:
            raise CommandFailed(f"{where} has no leader; `millstream topic describe` says more")
        offset = consumed_offset((commit.get(where) for commit in commits), ends[where])
        found = Trim(where.partition, starts[where], ends[where], offset)
        if offset is not None:
            # A commit before the log start is for records that are already gone.
            found.trim_offset = max(offset, found.start_offset)
            found.records = found.trim_offset - found.start_offset
        trims.append(found)
    return trims


def _estimate_bytes(cluster: Cluster, topic: str, trims: list[Trim]) -> None:
    sizes = {where.partition: size for where, size in cluster.partition_sizes(topic).items()}
    for each in trims:
        offsets = each.end_offset - each.start_offset
        if offsets > 0:
            each.size_bytes = sizes.get(each.partition, 0) * each.records // offsets


def _delete(bootstrap: str, topic: str, trims: list[Trim]) -> None:
    from confluent_kafka import TopicPartition as Place

    wanted = [
        Place(topic, each.partition, each.trim_offset)
        for each in trims
        if each.trim_offset is not None and each.records > 0
    ]
    if not wanted:
        return
    # Kept until they are done: a client that is dropped answers nothing.
    admin = connect_admin(bootstrap)
    answers = admin.delete_records(wanted, request_timeout=REQUEST_SECONDS_MAX)
    for place, future in answers.items():
        wait_for(future, f"partition {topic}-{place.partition}")


def _cells(found: Trim) -> list[object]:
    counts = [found.records, found.size_bytes]
    return [found.partition, found.start_offset, found.trim_offset, *counts]


def _as_json(found: Trim) -> dict[str, JsonValue]:
    return {
        "partition": found.partition,
        "log_start_offset": found.start_offset,
        "trim_offset": found.trim_offset,
        "records": found.records,
        "bytes": found.size_bytes,
    }
