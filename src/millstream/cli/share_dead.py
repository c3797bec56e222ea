"""`millstream share dead`: dead letters with their reasons, and sending their records again."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster, check
from millstream.cli.delayed_acks import Delay
from millstream.cli.failure import CommandFailed
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.names import GROUP, TOPIC
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.cli.progress import Progress
from millstream.cli.record_sender import RecordSender, connect_producer
from millstream.cli.record_text import JsonRecord, TextRecord
from millstream.cli.share_view import describe_share_group
from millstream.cli.topic_view import find_topic
from millstream.cli.transfer import open_reading
from millstream.client.blocking import Address
from millstream.client.start_position import Range, parse_range
from millstream.coordinators.share import dead_letters
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.records.batch import split_batches
from millstream.records.delivery_times import HEADERS as TIME_HEADERS
from millstream.records.records import Record, iterate_records
from millstream.records.validation import DECODED_BYTES_MAX
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic

_GROUP_RESOURCE: Final = 32
_OPTION: Final = "errors.deadletterqueue.topic.name"
_READ_AT_ONCE: Final = 1_000
# The newest that names topics.
_FETCH_VERSION: Final = 12


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter; `where` and `offset` are those of the record that died."""

    where: TopicPartition
    offset: int
    deliveries: int | None
    reason: str
    written_ms: int
    letter: TextRecord

    @property
    def is_copy(self) -> bool:
        return self.letter.key is not None or self.letter.value is not None


@click.command()
@click.argument("group_id", type=GROUP, metavar="GROUP")
@click.option("-t", "--topic", type=TOPIC, help="Default: the group's topic for dead letters.")
@click.option(
    "-n", "--count", type=click.IntRange(1), default=100, show_default=True, help="The newest."
)
@click.option(
    "--retry",
    "is_retried",
    is_flag=True,
    help="Send the records that are shown to their topics again.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def dead(
    group_id: str,
    topic: str | None,
    count: int,
    is_retried: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Show the dead letters of a share group: which records died, and why.

    With --retry their records are sent to the same partitions again, for all groups that read
    them. The letters stay, so a second --retry sends them twice.

    Example: millstream share dead workers -n 10
    """
    with Cluster(bootstrap) as cluster:
        if topic is None:
            describe_share_group(cluster, group_id)
            topic = _topic_of(cluster, group_id)
        find_topic(cluster, topic)
    found = list(deque(_letters(bootstrap, topic, group_id), maxlen=count))
    if is_retried and found:
        if not yes:
            confirm(f"Send {counted(len(found), 'record')} again?", "sending records again")
        sent = _send_again(bootstrap, found)
        if not as_json:
            echo(f"sent {counted(sent, 'record')} again", err=True)
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    if not is_retried:
        _print(found, group_id, topic)


def _topic_of(cluster: Cluster, group_id: str) -> str:
    resource = DescribeConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group_id, configuration_keys=[_OPTION]
    )
    request = DescribeConfigsRequest(resources=[resource])
    [answer] = cluster.ask(cluster.first, request).results
    check(answer.error_code, f"group {group_id}", answer.error_message)
    found = next((one.value for one in answer.configs if one.name == _OPTION), None)
    if not found:
        raise CommandFailed(
            f"share group {group_id} has no topic for dead letters: set its {_OPTION}, "
            "or name a topic with --topic"
        )
    return found


# -- reading --------------------------------------------------------------------------------


def _letters(bootstrap: str, topic: str, group_id: str) -> Iterator[Letter]:
    span: Range = parse_range("beginning", now=datetime.now(UTC))
    with closing(open_reading(bootstrap, topic, span, is_bounded=True)) as reading:
        found: list[Letter] = []
        while not reading.is_over():
            for record in reading.take(_READ_AT_ONCE):
                one = _letter(record)
                if one is not None and _text(record, dead_letters.GROUP) == group_id:
                    found.append(one)
    found.sort(key=lambda one: one.written_ms)
    yield from found


def _letter(record: TextRecord) -> Letter | None:
    """None for a record that is no letter."""
    try:
        where = TopicPartition(
            _text(record, dead_letters.TOPIC), int(_text(record, dead_letters.PARTITION))
        )
        offset = int(_text(record, dead_letters.OFFSET))
    except (KeyError, ValueError):
        return None
    headers = dict(record.headers)
    deliveries = headers.get(dead_letters.DELIVERY_COUNT) or b""
    return Letter(
        where,
        offset,
        int(deliveries) if deliveries.isdigit() else None,
        (headers.get(dead_letters.MESSAGE) or b"").decode(errors="replace"),
        record.timestamp_ms,
        record,
    )


def _text(record: TextRecord, name: str) -> str:
    """Raises KeyError."""
    return (dict(record.headers)[name] or b"").decode(errors="replace")


# -- sending again --------------------------------------------------------------------------


def _send_again(bootstrap: str, found: Iterable[Letter]) -> int:
    by_topic: dict[str, list[JsonRecord]] = {}
    with Cluster(bootstrap) as cluster:
        leaders: dict[str, dict[int, Address]] = {}
        for letter in found:
            topic = letter.where.topic
            if topic not in leaders:
                leaders[topic] = _leaders(cluster, topic)
            by_topic.setdefault(topic, []).append(_record_of(cluster, leaders[topic], letter))
    sent = 0
    for topic, records in by_topic.items():
        delay = Delay(bootstrap, topic, is_acks_all=True)
        watch = BrokerWatch(bootstrap)
        producer = connect_producer(bootstrap, watch, "none", "all")
        progress = Progress(quiet=True, plain=False)
        sender = RecordSender(topic, producer, watch, progress, delay)
        sender.send_all(iter(records))
        sent += sender.sent_count
    return sent


def _leaders(cluster: Cluster, topic: str) -> dict[int, Address]:
    answer = cluster.metadata(topic)
    nodes = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
    return {
        row.partition_index: nodes[row.leader_id]
        for found in answer.topics
        for row in found.partitions
        if row.leader_id in nodes
    }


def _record_of(cluster: Cluster, leaders: dict[int, Address], letter: Letter) -> JsonRecord:
    """The record that died: from its letter if that is a copy, or else from its topic."""
    if letter.is_copy:
        copy = letter.letter
        return _again(copy.key, copy.value, copy.headers, letter)
    record = _fetch(cluster, leaders, letter)
    if record is None:
        raise CommandFailed(
            f"the record {letter.offset} of {letter.where.topic}-{letter.where.partition} is gone,"
            " and its dead letter has no copy"
            " (errors.deadletterqueue.copy.record.enable); nothing was sent"
        )
    return _again(record.key, record.value, record.headers, letter)


def _again(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    letter: Letter,
) -> JsonRecord:
    kept = [
        (name, content)
        for name, content in headers
        if not name.startswith(dead_letters.PREFIX) and name not in TIME_HEADERS
    ]
    return JsonRecord(
        key=key,
        value=value,
        headers=kept,
        timestamp_ms=int(time.time() * 1000),
        partition=letter.where.partition,
    )


def _fetch(cluster: Cluster, leaders: dict[int, Address], letter: Letter) -> Record | None:
    where = letter.where
    if where.partition not in leaders:
        raise CommandFailed(f"{where.topic}-{where.partition} has no leader; nothing was sent")
    row = FetchPartition(
        partition=where.partition, fetch_offset=letter.offset, partition_max_bytes=1
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[FetchTopic(topic=where.topic, partitions=[row])],
    )
    answer = cluster.ask(leaders[where.partition], request, _FETCH_VERSION)
    for topic in answer.responses:
        for found in topic.partitions:
            if found.error_code == KafkaCode.OFFSET_OUT_OF_RANGE:
                return None
            check(found.error_code, f"{where.topic}-{where.partition}")
            for batch in split_batches(memoryview(bytes(found.records or b""))):
                for record in iterate_records(batch, limit_bytes=DECODED_BYTES_MAX):
                    if record.offset == letter.offset:
                        return record
    return None


# -- printing -------------------------------------------------------------------------------


def _print(found: list[Letter], group_id: str, topic: str) -> None:
    print_table(
        ("TOPIC", "PARTITION", "OFFSET", "DELIVERIES", "WHEN", "REASON"),
        [
            (
                *(one.where.topic, one.where.partition, one.offset, one.deliveries),
                _when(one.written_ms),
                one.reason,
            )
            for one in found
        ],
    )
    echo(f"{counted(len(found), 'dead letter')} of {group_id} in {topic}", err=True)


def _when(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_json(one: Letter) -> JsonValue:
    return {
        "topic": one.where.topic,
        "partition": one.where.partition,
        "offset": one.offset,
        "deliveries": one.deliveries,
        "reason": one.reason,
        "timestamp_ms": one.written_ms,
        "is_copy": one.is_copy,
        "letter_partition": one.letter.partition,
        "letter_offset": one.letter.offset,
    }
