"""`millstream topic list` and `topic offsets`: what the topics hold, without a client library."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.connection import Cluster
from millstream.cli.names import TOPIC
from millstream.cli.output import JsonValue, print_json, print_table
from millstream.cli.topic_view import EARLIEST, LATEST, offsets_at, topic_partitions
from millstream.cli.watching import print_again, watch_option
from millstream.client.start_position import FromTime, parse_start
from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all partitions of a topic, at one moment."""

    # Offsets, strictly: compaction and transactions leave gaps.
    records: int
    # Produced since the topic exists.
    end_offsets: int
    size_bytes: int


@click.command("list")
@click.option("--internal", is_flag=True, help="Also show internal topics.")
@click.option("--wide", is_flag=True, help="Also show records and bytes.")
@watch_option
@json_option
@bootstrap_option
def list_topics(
    internal: bool, wide: bool, watch_seconds: float | None, as_json: bool, bootstrap: str
) -> None:
    """List the topics of the cluster.

    With --watch, also the records that are produced per second.
    """
    with Cluster(bootstrap) as cluster:
        seen = _Rates()

        def show() -> None:
            rows = _rows(cluster, internal=internal)
            totals = read_totals(cluster, rows) if wide or watch_seconds else None
            rates = seen.next(totals, time.monotonic()) if watch_seconds and totals else None
            if as_json:
                print_json([_as_json(name, rows[name], totals, rates) for name in rows])
            else:
                _print(rows, totals, rates)

        print_again(show, watch_seconds)


def _rows(cluster: Cluster, *, internal: bool) -> dict[str, tuple[int, int]]:
    """Partitions and replicas, by name."""
    return {
        topic.name: (
            len(topic.partitions),
            max((len(one.replica_nodes) for one in topic.partitions), default=0),
        )
        for topic in sorted(cluster.metadata().topics, key=lambda topic: topic.name or "")
        if topic.name and (internal or not topic.name.startswith("__"))
    }


def read_totals(cluster: Cluster, topics: Mapping[str, tuple[int, int]]) -> dict[str, Totals]:
    places = [TopicPartition(name, i) for name, (count, _) in topics.items() for i in range(count)]
    first, end = offsets_at(cluster, places, EARLIEST), offsets_at(cluster, places, LATEST)
    sizes = cluster.partition_sizes()
    found = {}
    for name, (count, _) in topics.items():
        own = [TopicPartition(name, i) for i in range(count)]
        ends = sum(end.get(where, 0) for where in own)
        found[name] = Totals(
            records=ends - sum(first.get(where, 0) for where in own),
            end_offsets=ends,
            size_bytes=sum(sizes.get(where, 0) for where in own),
        )
    return found


class _Rates:
    """Records per second since the last look."""

    def __init__(self) -> None:
        self._before: tuple[float, Mapping[str, Totals]] | None = None

    def next(self, totals: Mapping[str, Totals], now: float) -> dict[str, float | None]:
        before, self._before = self._before, (now, totals)
        if before is None:
            return dict.fromkeys(totals)
        seconds = max(now - before[0], 0.001)
        return {
            name: (each.end_offsets - before[1][name].end_offsets) / seconds
            if name in before[1]
            else None
            for name, each in totals.items()
        }


def _as_json(
    name: str,
    row: tuple[int, int],
    totals: Mapping[str, Totals] | None,
    rates: Mapping[str, float | None] | None,
) -> JsonValue:
    found: dict[str, JsonValue] = {"name": name, "partitions": row[0], "replicas": row[1]}
    if totals is not None:
        found |= {"records": totals[name].records, "size_bytes": totals[name].size_bytes}
    if rates is not None:
        found["records_per_second"] = rates[name]
    return found


def _print(
    rows: Mapping[str, tuple[int, int]],
    totals: Mapping[str, Totals] | None,
    rates: Mapping[str, float | None] | None,
) -> None:
    headings = ["NAME", "PARTITIONS", "REPLICAS"]
    headings += ["RECORDS", "BYTES"] if totals is not None else []
    headings += ["RECORDS-PER-SECOND"] if rates is not None else []
    lines: list[list[object]] = []
    for name, (partitions, replicas) in rows.items():
        line: list[object] = [name, partitions, replicas]
        if totals is not None:
            line += [totals[name].records, totals[name].size_bytes]
        if rates is not None:
            rate = rates[name]
            line.append(None if rate is None else round(rate))
        lines.append(line)
    print_table(headings, lines)


@click.command("offsets")
@click.argument("topic", type=TOPIC)
@click.option(
    "--at",
    "time_text",
    metavar="TIME",
    help="Also the first offset at or after this: 2026-01-31, 2026-01-31T12:00:00Z, -1h.",
)
@json_option
@bootstrap_option
def offsets(topic: str, time_text: str | None, as_json: bool, bootstrap: str) -> None:
    """Show the first and the end offset of each partition, and those at a time.

    AT is the end of the partition if no record is that new.
    """
    at_ms = None if time_text is None else _parse_time(time_text)
    with Cluster(bootstrap) as cluster:
        places = [TopicPartition(topic, index) for index in topic_partitions(cluster, topic)]
        first, end = offsets_at(cluster, places, EARLIEST), offsets_at(cluster, places, LATEST)
        at = {} if at_ms is None else offsets_at(cluster, places, at_ms)
    rows: list[dict[str, JsonValue]] = []
    for where in places:
        found = at.get(where)
        rows.append(
            {
                "partition": where.partition,
                "log_start_offset": first.get(where),
                "log_end_offset": end.get(where),
                **({} if at_ms is None else {"at": end.get(where) if found == -1 else found}),
            }
        )
    if as_json:
        print_json(rows)
        return
    headings = ["PARTITION", "LOG-START-OFFSET", "LOG-END-OFFSET"]
    print_table(headings + ([] if at_ms is None else ["AT"]), [list(row.values()) for row in rows])


def _parse_time(text: str) -> int:
    try:
        start = parse_start(text if text.startswith("@") else f"@{text}", now=datetime.now(UTC))
    except ValueError as wrong:
        raise click.UsageError(f"--at: {wrong}") from None
    assert isinstance(start, FromTime)
    return start.timestamp_ms
