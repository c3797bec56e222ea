"""`millstream cluster advise`: how large a cluster has to be, and whether its topics fit."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.connection import Cluster
from millstream.cli.durations import DURATION
from millstream.cli.group_view import describe_group, list_groups
from millstream.cli.machine_rates import (
    SECONDS,
    Measurement,
    cache_path,
    measure,
    read_measurement,
    write_measurement,
)
from millstream.cli.output import echo, print_json, print_table
from millstream.cluster.sizing import (
    Advice,
    Load,
    Rates,
    TopicLoad,
    TopicVerdict,
    advise,
    judge_topic,
)
from millstream.model import INTERNAL_TOPICS, TopicPartition

_MEGABYTE: Final = 1_000_000
Sizes = Mapping[TopicPartition, int]


@click.command(name="advise")
@click.option("--mb-per-second", type=click.FloatRange(0, min_open=True), help="The incoming load.")
@click.option(
    "--retention",
    "retention_seconds",
    type=DURATION,
    default="7d",
    show_default=True,
    help="How long records are kept.",
)
@click.option("--replicas", default=3, show_default=True, type=click.IntRange(1, 20))
@click.option(
    "--groups",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="Groups that read it all.",
)
@click.option(
    "--consumer-mb-per-second",
    type=click.FloatRange(0, min_open=True),
    help="What one of your consumers can process. Default: a consumer that only reads.",
)
@click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT",
    envvar=["MILLSTREAM_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS"],
    help="Watch the topics of this cluster instead.",
)
@click.option(
    "--seconds", default=10.0, show_default=True, type=click.FloatRange(1), help="To watch."
)
@click.option("--measure", "is_new", is_flag=True, help="Measure this machine again.")
@click.option(
    "--measure-in",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder on the disk to measure.",
)
@click.option(
    "--measure-seconds", default=SECONDS, show_default=True, type=click.FloatRange(1), hidden=True
)
@json_option
def advise_command(
    mb_per_second: float | None,
    retention_seconds: float,
    replicas: int,
    groups: int,
    consumer_mb_per_second: float | None,
    bootstrap: str | None,
    seconds: float,
    is_new: bool,
    measure_in: Path,
    measure_seconds: float,
    as_json: bool,
) -> None:
    """Compute how many partitions, consumers and nodes a load needs, and how much disk.

    With --mb-per-second: for that load. Without: for each topic of a running cluster, whether
    it has too few or too many partitions for its present load.

    The figures are based on the rates of this machine. The first run measures them, which
    takes a minute and two gigabytes of disk, and keeps the result.

    Example: millstream cluster advise --mb-per-second 50 --retention 7d --replicas 3
    """
    if mb_per_second is None and bootstrap is None:
        raise click.UsageError("give --mb-per-second, or --bootstrap of a running cluster")
    rates = _rates(measure_in, seconds=measure_seconds, is_new=is_new, is_announced=not as_json)
    if consumer_mb_per_second is not None:
        rates = replace(rates, consumer_mb_per_second=consumer_mb_per_second)
    if mb_per_second is not None:
        load = Load(mb_per_second, retention_seconds, replicas, groups)
        _show_advice(advise(load, rates), as_json=as_json)
        return
    assert bootstrap is not None
    with Cluster(bootstrap) as cluster:
        verdicts = watch(cluster, rates, seconds=seconds)
    _show_verdicts(verdicts, as_json=as_json)


def _rates(folder: Path, *, seconds: float, is_new: bool, is_announced: bool) -> Rates:
    kept = None if is_new else read_measurement(cache_path())
    if kept is None:
        echo(f"measuring this machine for {seconds:.0f} s ...", err=True)
        kept = measure(folder, seconds=seconds)
        write_measurement(cache_path(), kept)
    if is_announced:
        _show_rates(kept)
    return kept.rates


def _show_rates(measured: Measurement) -> None:
    rates = measured.rates
    echo(f"measured on this machine on {measured.day}, 1 KB records, one client")
    for name, value in (
        ("one partition takes", f"{rates.partition_mb_per_second:.0f} MB/s (acks=all)"),
        ("one consumer reads", f"{rates.consumer_mb_per_second:.0f} MB/s"),
        ("the disk writes", f"{rates.disk_mb_per_second:.0f} MB/s (synced)"),
        (
            "a node spends",
            f"{rates.cpu_seconds_per_mb_in * 1000:.2f} ms of a core on a megabyte in, "
            f"{rates.cpu_seconds_per_mb_out * 1000:.2f} ms on one out",
        ),
    ):
        echo(f"  {name:<21}{value}")
    echo()


def _show_advice(advice: Advice, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "partitions": advice.partitions,
                "consumers": advice.consumers,
                "nodes": advice.nodes,
                "disk_gb_per_node": advice.disk_gb_per_node,
                "cache_gb_per_node": advice.cache_gb_per_node,
            }
        )
        return
    for figure in advice.figures:
        echo(f"{figure.name:<12}{figure.value}")
        for line in figure.arithmetic:
            echo(f"{'':12}  {line}")


# -- a running cluster -----------------------------------------------------------------


def watch(cluster: Cluster, rates: Rates, *, seconds: float) -> list[TopicVerdict]:
    """Read the sizes of all partitions twice."""
    before, began = cluster.partition_sizes(), time.perf_counter()
    time.sleep(seconds)
    after, taken = cluster.partition_sizes(), time.perf_counter() - began
    nodes = len(cluster.nodes())
    members = largest_groups(cluster)
    return [
        judge_topic(
            TopicLoad(topic, partitions, bytes_per_second / _MEGABYTE, members.get(topic, 0)),
            rates,
            nodes=nodes,
        )
        for topic, partitions, bytes_per_second in topic_rates(before, after, taken)
    ]


def topic_rates(before: Sizes, after: Sizes, seconds: float) -> Iterable[tuple[str, int, float]]:
    """Each topic, its partitions and its growth in bytes a second.

    A partition that lost old records in between may seem to shrink; it counts as not growing.
    """
    for topic in sorted({where.topic for where in after} - INTERNAL_TOPICS):
        own = [where for where in after if where.topic == topic]
        grown = sum(max(after[where] - before.get(where, 0), 0) for where in own)
        yield topic, len(own), grown / seconds


def largest_groups(cluster: Cluster) -> dict[str, int]:
    """By topic, the members of the largest group that reads it."""
    most: dict[str, int] = {}
    for listed in list_groups(cluster):
        members = describe_group(cluster, listed.group_id).members
        for topic in {where.topic for member in members for where in member.partitions}:
            most[topic] = max(most.get(topic, 0), len(members))
    return most


def _show_verdicts(verdicts: list[TopicVerdict], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "topic": one.topic.name,
                    "partitions": one.topic.partitions,
                    "mb_per_second": one.topic.mb_per_second,
                    "members": one.topic.members,
                    "needed": one.needed,
                    "verdict": one.verdict,
                }
                for one in verdicts
            ]
        )
        return
    print_table(
        ["TOPIC", "PARTITIONS", "MB/S", "MEMBERS", "NEEDED", "VERDICT"],
        [
            (
                one.topic.name,
                one.topic.partitions,
                f"{one.topic.mb_per_second:.3f}",
                one.topic.members,
                one.needed,
                f"{one.verdict}: {one.why}" if one.why else one.verdict,
            )
            for one in verdicts
        ],
    )
