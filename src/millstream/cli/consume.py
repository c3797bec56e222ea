"""`millstream consume`: print the records of a topic.

It assigns partitions to itself and commits nothing, so that reading a topic never
disturbs a consumer group.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO

import click

from millstream.cli.bootstrap import (
    REQUEST_SECONDS_MAX,
    bootstrap_option,
    check_reachable,
    client_settings,
    connect_admin,
    describe_topic,
    explain,
    wait_for,
)
from millstream.cli.failure import CommandFailed
from millstream.cli.output import echo
from millstream.cli.record_text import TextRecord, compile_format, to_json_line
from millstream.cli.start_position import (
    FromBeginning,
    FromEnd,
    FromOffset,
    FromTime,
    Start,
    parse_start,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka.admin import AdminClient

_BATCH_RECORDS_MAX = 500
_POLL_SECONDS = 0.25
Printer = Callable[[TextRecord], bytes]


@click.command()
@click.argument("topic")
@click.option(
    "-o",
    "--offset",
    "start_text",
    default="beginning",
    show_default=True,
    metavar="START",
    help="beginning, end, N, -N (last N of each partition), @TIME (@2026-01-31, @-1h).",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end of every partition.")
@click.option("-p", "--partition", "wanted", multiple=True, type=click.IntRange(0))
@click.option(
    "-f",
    "--format",
    "format_text",
    default="%v\\n",
    help="%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T ms, %d date, "
    "%K and %S lengths, \\n, \\t, \\xNN.  [default: %v\\n]",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object per line.")
@bootstrap_option
def consume(
    topic: str,
    start_text: str,
    count: int | None,
    exit_at_end: bool,
    wanted: tuple[int, ...],
    format_text: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Print the records of TOPIC, and keep printing as new ones arrive.

    Example: millstream consume orders -o -10 -e -f '%o %k %v\\n'
    """
    from confluent_kafka import TopicPartition

    try:
        start = parse_start(start_text, now=datetime.now(UTC))
        printer: Printer = to_json_line if as_json else compile_format(format_text)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    admin = connect_admin(bootstrap)
    existing = [partition.id for partition in describe_topic(admin, topic).partitions]
    partitions = _choose_partitions(topic, existing, wanted)
    bounds = _find_bounds(admin, topic, partitions, start)
    consumer = _connect(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, p, each.start) for p, each in bounds.items()])
        reading = _Reading(topic, consumer, bootstrap)
        if exit_at_end:
            # The end at this moment: a busy topic would never be at its end.
            reading.ends = {p: each.end for p, each in bounds.items() if each.start < each.end}
        reading.print_records(printer, sys.stdout.buffer, count=count)
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Where reading starts in a partition, and its end when the command began."""

    start: int
    end: int


class _Reading:
    """The loop: receive, print, notice the end."""

    def __init__(self, topic: str, consumer: "Consumer", bootstrap: str) -> None:
        # Partitions still to be read to this offset; None to read forever.
        self.ends: dict[int, int] | None = None
        self._topic = topic
        self._consumer = consumer
        self._bootstrap = bootstrap

    def print_records(self, printer: Printer, output: BinaryIO, *, count: int | None) -> None:
        left = sys.maxsize if count is None else count
        while left > 0 and self.ends != {}:
            records = self._take(min(left, _BATCH_RECORDS_MAX))
            output.write(b"".join(printer(record) for record in records))
            # Readers of a pipe see records when they arrive, not when a buffer fills.
            output.flush()
            left -= len(records)

    def _take(self, limit: int) -> list[TextRecord]:
        records = []
        for message in self._consumer.consume(limit, timeout=_POLL_SECONDS):
            error = message.error()
            if error is not None:
                self._note(error, message)
                continue
            record = _to_record(message)
            if self._is_wanted(record):
                records.append(record)
        return records

    def _is_wanted(self, record: TextRecord) -> bool:
        if self.ends is None:
            return True
        end = self.ends.get(record.partition, 0)
        if record.offset >= end - 1:
            self.ends.pop(record.partition, None)
        return record.offset < end

    def _note(self, error: "KafkaError", message: "Message") -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            # The last offsets may hold no record: a marker, or a record that was compacted away.
            partition = message.partition()
            if self.ends is not None and partition is not None:
                self.ends.pop(partition, None)
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            # Also reported when one idle connection closes: believe it if no broker listens.
            check_reachable(self._bootstrap)
        elif not error.retriable():
            raise explain(error, f"topic {self._topic}")


def _choose_partitions(topic: str, existing: list[int], wanted: tuple[int, ...]) -> list[int]:
    missing = sorted(set(wanted) - set(existing))
    if missing:
        raise CommandFailed(
            f"topic {topic} has no partition {missing[0]}; it has 0 to {len(existing) - 1}"
        )
    return sorted(set(wanted)) or existing


def _find_bounds(
    admin: "AdminClient", topic: str, partitions: list[int], start: Start
) -> dict[int, _Bounds]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    def ask(spec: OffsetSpec) -> dict[int, int]:
        questions = {TopicPartition(topic, partition): spec for partition in partitions}
        answers = admin.list_offsets(questions, request_timeout=REQUEST_SECONDS_MAX)
        return {
            asked.partition: wait_for(answer, f"topic {topic}").offset
            for asked, answer in answers.items()
        }

    first, end = ask(OffsetSpec.earliest()), ask(OffsetSpec.latest())
    match start:
        case FromBeginning():
            found = first
        case FromEnd(back=back):
            found = {p: max(first[p], end[p] - back) for p in partitions}
        case FromOffset(offset=offset):
            # Outside the log a client would jump to the other end; stay at the near one.
            found = {p: min(max(offset, first[p]), end[p]) for p in partitions}
            for p in partitions:
                if found[p] != offset:
                    echo(
                        f"millstream: {topic}-{p} holds {first[p]} to {end[p]}, "
                        f"starting at {found[p]}",
                        err=True,
                    )
        case FromTime(timestamp_ms=timestamp_ms):
            at = ask(OffsetSpec.for_timestamp(timestamp_ms))
            found = {p: at[p] if at[p] >= 0 else end[p] for p in partitions}
    return {p: _Bounds(start=found[p], end=end[p]) for p in partitions}


def _connect(bootstrap: str) -> "Consumer":
    from confluent_kafka import Consumer

    return Consumer(
        {
            **client_settings(bootstrap),
            # The library requires a name; nothing joins or commits to the group.
            "group.id": "millstream-consume",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )


def _to_record(message: "Message") -> TextRecord:
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
