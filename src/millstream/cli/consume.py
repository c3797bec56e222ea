"""`millstream consume`: print the records of topics.

It assigns partitions to itself and commits nothing, so that reading a topic never disturbs a
consumer group. With --group it is a member of that group like any other, and commits what it
has printed.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO

import click

from millstream.cli.bootstrap import bootstrap_option, client_settings, explain
from millstream.cli.failure import CommandFailed
from millstream.cli.names import GROUP, TOPIC
from millstream.cli.output import check_output_open, echo, terminal_bytes
from millstream.cli.record_filter import Filter, compile_filter
from millstream.cli.record_text import (
    TextRecord,
    as_it_is,
    compile_format,
    to_json_line,
    to_terminal_json_line,
)
from millstream.cli.schemas import decoder, registry_option
from millstream.client.start_position import (
    FromEnd,
    FromOffset,
    FromTime,
    Range,
    Start,
    offset_of,
    parse_range,
)
from millstream.model import TopicPartition as Place

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from millstream.cli.connection import Cluster
    from millstream.cli.first_contact import BrokerWatch

_BATCH_RECORDS_MAX = 500
_POLL_SECONDS = 0.25
Printer = Callable[[TextRecord], bytes]


@click.command()
@click.argument("topics", nargs=-1, required=True, type=TOPIC, metavar="TOPIC...")
@click.option(
    "-o",
    "--offset",
    "range_text",
    default="beginning",
    show_default=True,
    metavar="START[:END]",
    help="beginning, end, N, -N (last N of each partition), @TIME (@2026-01-31, @-1h); or a range "
    "such as 100:200 or @-2h:@-1h, without its end.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end of every partition.")
@click.option(
    "-p",
    "--partition",
    "wanted",
    multiple=True,
    type=click.IntRange(0),
    help="Only this one; repeat it for more.",
)
@click.option("--regex", is_flag=True, help="TOPIC is a regular expression for whole names.")
@click.option(
    "--grep", multiple=True, metavar="REGEX", help="Only with this in key, value, header."
)
@click.option("--key", "keys", multiple=True, metavar="REGEX", help="Only with this in the key.")
@click.option(
    "--value", "values", multiple=True, metavar="REGEX", help="Only with this in the value."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME[=REGEX]", help="Only with this header."
)
@click.option(
    "-g", "--group", "group_id", type=GROUP, metavar="GROUP", help="Join a group and commit."
)
@click.option(
    "-f",
    "--format",
    "format_text",
    default="%v\\n",
    help="%t topic, %p partition, %o offset, %k key, %v or %s value, %h headers, %T ms, "
    "%d date, %K and %S lengths, %% percent, \\n, \\t, \\r, \\0, \\xNN, \\\\.  [default: %v\\n]",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object per line.")
@registry_option("Print data with the id of a schema as JSON; the schema registry.")
@bootstrap_option
def consume(
    topics: tuple[str, ...],
    range_text: str,
    count: int | None,
    exit_at_end: bool,
    wanted: tuple[int, ...],
    regex: bool,
    grep: tuple[str, ...],
    keys: tuple[str, ...],
    values: tuple[str, ...],
    headers: tuple[str, ...],
    group_id: str | None,
    format_text: str,
    as_json: bool,
    registry_url: str | None,
    bootstrap: str,
) -> None:
    """Print the records of topics, and keep printing as new ones arrive.

    A pipe or a file gets the bytes of records as they are. On a terminal, control characters are
    printed as \\xNN.

    Example: millstream consume orders -o -10 -e -f '%o %k %v\\n'
    """
    try:
        span = parse_range(range_text, now=datetime.now(UTC))
        printer = _printer(format_text, as_json=as_json)
        matches = compile_filter(anywhere=grep, keys=keys, values=values, headers=headers)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    if group_id is not None and (wanted or span.end is not None):
        raise click.UsageError("--group takes no --partition and no range: the group decides")
    decode = decoder(registry_url)
    from millstream.cli.connection import Cluster
    from millstream.cli.first_contact import BrokerWatch

    with Cluster(bootstrap) as cluster:
        names = _matching(cluster, topics) if regex else list(dict.fromkeys(topics))
        places = find_places(cluster, names, wanted)
        bounds = {} if group_id is not None else find_bounds(cluster, places, span)
    watch = BrokerWatch(bootstrap)
    reading = Reading(connect(bootstrap, watch, group_id, span.start), watch, matches, decode)
    try:
        if group_id is not None:
            reading.join(names)
            reading.ends_with_assignment = exit_at_end
        else:
            # The end at this moment: a busy topic would never be at its end.
            reading.assign(bounds, is_bounded=exit_at_end or span.end is not None)
        reading.print_records(printer, sys.stdout.buffer, count=count)
    finally:
        reading.close()


def _printer(format_text: str, *, as_json: bool) -> Printer:
    """The writer of a record must not control the terminal of its reader."""
    is_terminal = sys.stdout.isatty()
    if as_json:
        return to_terminal_json_line if is_terminal else to_json_line
    return compile_format(format_text, terminal_bytes if is_terminal else as_it_is)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where reading starts in a partition, and where it ends when it is bounded."""

    start: int
    end: int


class Reading:
    """The loop: receive, print, notice the end."""

    def __init__(
        self,
        consumer: "Consumer",
        watch: "BrokerWatch",
        matches: Filter | None = None,
        decode: Callable[[TextRecord], None] | None = None,
    ) -> None:
        # Partitions still to be read to this offset; None to read forever.
        self.ends: dict[Place, int] | None = None
        # In a group: stop when all partitions it got were read to their ends.
        self.ends_with_assignment = False
        self._at_end: set[Place] = set()
        self._assigned: set[Place] | None = None
        self._consumer = consumer
        self._watch = watch
        self._is_broker_gone = False
        self._matches = matches
        self._decode = decode
        # The last record taken from each partition, printed or filtered out.
        self._last: dict[Place, Message] = {}
        # Where reading begins; empty in a group, where the commits decide.
        self._starts: dict[Place, int] = {}
        from millstream.cli.unreadable_batches import UnreadableBatches

        self._unreadable = UnreadableBatches(watch.bootstrap, consumer, self._starts)

    def assign(self, bounds: dict[Place, Bounds], *, is_bounded: bool) -> None:
        from confluent_kafka import TopicPartition

        if is_bounded:
            bounds = {where: each for where, each in bounds.items() if each.start < each.end}
            self.ends = {where: each.end for where, each in bounds.items()}
        self._starts.update((where, each.start) for where, each in bounds.items())
        self._consumer.assign(
            [TopicPartition(where.topic, where.partition, b.start) for where, b in bounds.items()]
        )

    def join(self, topics: Sequence[str]) -> None:
        def assigned(consumer: "Consumer", places: Iterable[object]) -> None:
            self._assigned = {Place(each.topic, each.partition) for each in places}  # type: ignore[attr-defined]
            self._at_end.clear()

        self._consumer.subscribe(list(topics), on_assign=assigned)

    def close(self) -> None:
        # Leaving a group without a broker would take the session timeout.
        if not self._is_broker_gone:
            self._consumer.close()

    def print_records(self, printer: Printer, output: BinaryIO, *, count: int | None) -> None:
        left = sys.maxsize if count is None else count
        while left > 0 and not self.is_over():
            records = self.take(min(left, _BATCH_RECORDS_MAX))
            if records:
                output.write(b"".join(printer(record) for record in records))
                # Readers of a pipe see records when they arrive, not when a buffer fills.
                output.flush()
            else:
                check_output_open()
            self._store_printed()
            left -= len(records)

    def _store_printed(self) -> None:
        """In a group: what the library commits from time to time, and when it is closed."""
        from confluent_kafka import KafkaError, KafkaException

        for message in self._last.values() if self._assigned is not None else ():
            try:
                self._consumer.store_offsets(message)
            except KafkaException as failed:
                # Another member has the partition by now, and prints these records, too.
                if failed.args[0].code() not in (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION):
                    raise
        self._last.clear()

    def is_over(self) -> bool:
        if self.ends is not None:
            return not self.ends
        return (
            self.ends_with_assignment
            and self._assigned is not None
            and self._assigned <= self._at_end
        )

    def take(self, limit: int) -> list[TextRecord]:
        """Records that arrived and match; often none."""
        first = self._consumer.poll(_POLL_SECONDS)
        if first is None:
            self._check_broker()
            self._skip_unreadable()
            return []
        self._unreadable.heard()
        records = []
        for message in [first, *self._consumer.consume(limit - 1, timeout=0)]:
            error = message.error()
            if error is not None:
                self._note(error, message)
                continue
            record = to_record(message)
            self._last[Place(record.topic, record.partition)] = message
            if self._decode is not None:
                self._decode(record)
            if self._is_inside(record) and (self._matches is None or self._matches(record)):
                records.append(record)
        return records

    def _check_broker(self) -> None:
        try:
            self._watch.check()
        except CommandFailed:
            self._is_broker_gone = True
            raise

    def _skip_unreadable(self) -> None:
        for where, offset in self._unreadable.skip().items():
            if self.ends is not None and offset >= self.ends.get(where, offset):
                self.ends.pop(where, None)

    def _is_inside(self, record: TextRecord) -> bool:
        if self.ends is None:
            return True
        where = Place(record.topic, record.partition)
        end = self.ends.get(where, 0)
        if record.offset >= end - 1:
            self.ends.pop(where, None)
        return record.offset < end

    def _note(self, error: "KafkaError", message: "Message") -> None:
        from confluent_kafka import KafkaError

        topic, partition = message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            # The last offsets may hold no record: a marker, or a record that was compacted away.
            assert topic is not None
            assert partition is not None
            self._at_end.add(Place(topic, partition))
            if self.ends is not None:
                self.ends.pop(Place(topic, partition), None)
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            self._watch.suspect()
        elif not error.retriable():
            raise explain(error, f"topic {topic}" if topic else "reading")


def _matching(cluster: "Cluster", patterns: Sequence[str]) -> list[str]:
    names = [topic.name or "" for topic in cluster.metadata().topics]
    found: list[str] = []
    for pattern in patterns:
        try:
            compiled = re.compile(pattern)
        except re.error as wrong:
            raise click.UsageError(f"{pattern!r} is not a regular expression: {wrong}") from None
        # Internal topics only for those who name them.
        matching = [name for name in names if compiled.fullmatch(name)]
        found += [name for name in matching if pattern.startswith("__") or name[:2] != "__"]
    if not found:
        raise CommandFailed(
            f"no topic matches {', '.join(patterns)}. `millstream topic list` shows the topics"
        )
    return sorted(set(found))


def find_places(cluster: "Cluster", topics: Sequence[str], wanted: Sequence[int]) -> list[Place]:
    """The partitions of these topics, all or those that are wanted. Raises CommandFailed."""
    from millstream.cli.topic_view import topic_partitions

    places = []
    for topic in topics:
        existing = topic_partitions(cluster, topic)
        missing = sorted(set(wanted) - set(existing))
        if missing:
            raise CommandFailed(
                f"topic {topic} has no partition {missing[0]}; it has 0 to {len(existing) - 1}"
            )
        places += [Place(topic, number) for number in sorted(set(wanted)) or existing]
    return places


def find_bounds(cluster: "Cluster", places: list[Place], span: Range) -> dict[Place, Bounds]:
    """Offsets for a range. An end that is not given is the end at this moment."""
    from millstream.cli.topic_view import EARLIEST, LATEST, offsets_at

    first, end = offsets_at(cluster, places, EARLIEST), offsets_at(cluster, places, LATEST)
    leaderless = [where for where in places if where not in end]
    if leaderless:
        raise CommandFailed(f"{leaderless[0]} has no leader; `millstream topic describe` says more")

    def resolve(point: Start) -> dict[Place, int]:
        at: dict[Place, int] = {}
        if isinstance(point, FromTime):
            at = offsets_at(cluster, places, point.timestamp_ms)
        return {
            where: offset_of(point, first=first[where], end=end[where], at=at.get(where, -1))
            for where in places
        }

    starts = resolve(span.start)
    ends = end if span.end is None else resolve(span.end)
    if isinstance(span.start, FromOffset):
        _tell_moved(span.start.offset, starts, first, end)
    return {where: Bounds(start=starts[where], end=ends[where]) for where in places}


def _tell_moved(
    offset: int, starts: dict[Place, int], first: dict[Place, int], end: dict[Place, int]
) -> None:
    for where, start in starts.items():
        if start != offset:
            held = f"{where} holds {first[where]} to {end[where]}"
            echo(f"millstream: {held}, starting at {start}", err=True)


def connect(
    bootstrap: str, watch: "BrokerWatch", group_id: str | None = None, start: Start | None = None
) -> "Consumer":
    """Without a group: nothing joins or commits, but the library requires a name."""
    from confluent_kafka import Consumer

    is_from_end = isinstance(start, FromEnd)
    reset = "error" if group_id is None else ("latest" if is_from_end else "earliest")
    return Consumer(
        {
            **client_settings(bootstrap),
            "group.id": group_id or "millstream-consume",
            "enable.auto.commit": group_id is not None,
            # Taken is not printed yet: see `Reading`.
            "enable.auto.offset.store": False,
            "auto.offset.reset": reset,
            "enable.partition.eof": True,
            "error_cb": watch.on_error,
        }
    )


def to_record(message: "Message") -> TextRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    assert isinstance(headers, list)
    return TextRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=[
            (name, value.encode() if isinstance(value, str) else value) for name, value in headers
        ],
    )
