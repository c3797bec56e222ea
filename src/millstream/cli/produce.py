"""`millstream produce`: every line of stdin becomes a record."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.delayed_acks import Delay
from millstream.cli.durations import DURATION
from millstream.cli.failure import CommandFailed
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.names import TOPIC
from millstream.cli.progress import Progress
from millstream.cli.record_sender import RecordSender, connect_producer, print_sent
from millstream.cli.record_text import Headers, JsonRecord, from_json_line, unescaped
from millstream.cli.schemas import encoder, schema_options
from millstream.cli.topic_view import require_topic
from millstream.records.delivery_times import headers_for

_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_READ_BYTES = 1 << 20
_IDLE_SECONDS = 0.25
_SEPARATOR_HELP = "Lines are KEY, then TEXT, then VALUE. \\\\t is a tab, \\\\xNN any byte."


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help=_SEPARATOR_HELP)
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE")
@click.option("-p", "--partition", type=click.IntRange(0), help="Default: chosen by key.")
@click.option("-z", "--compression", type=click.Choice(_CODECS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="Send an empty value as null.")
@click.option(
    "-J", "--json-lines", is_flag=True, help="Lines in the format of `consume -J`, not plain text."
)
@click.option(
    "--delay",
    "delay_seconds",
    type=DURATION,
    help="Deliver the records only after this time, to share groups and timed topics.",
)
@click.option(
    "--ttl",
    "ttl_seconds",
    type=DURATION,
    help="Do not deliver the records after this time, likewise.",
)
@schema_options
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no count.")
@json_option
@bootstrap_option
def produce(
    topic: str,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    empty_is_null: bool,
    json_lines: bool,
    delay_seconds: float | None,
    ttl_seconds: float | None,
    value_schema: str | None,
    key_schema: str | None,
    registry_url: str | None,
    quiet: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Send the lines of stdin to TOPIC, one record each.

    Example: printf 'a:1\\nb:2\\n' | millstream produce orders -K :
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator are mutually exclusive")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    if delay_seconds is not None and ttl_seconds is not None and ttl_seconds <= delay_seconds:
        raise click.UsageError("--ttl must be longer than --delay: both count from now")
    rules = LineRules(
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else _separator(key_separator),
        headers=[_parse_header(header) for header in headers],
        partition=partition,
        empty_is_null=empty_is_null,
    )
    parse = _json_parser(rules) if json_lines else rules.parse
    if delay_seconds is not None or ttl_seconds is not None:
        parse = _timing_parser(parse, delay_seconds, ttl_seconds)
    require_topic(bootstrap, topic)
    encode = encoder(topic, value_schema, key_schema, registry_url)
    if encode is not None:
        parse = _encoding_parser(parse, encode)
    delay = Delay(bootstrap, topic, is_acks_all=acks == "all")
    watch = BrokerWatch(bootstrap)
    producer = connect_producer(bootstrap, watch, compression, acks)
    sender = RecordSender(topic, producer, watch, Progress(quiet=quiet, plain=False), delay)
    with delay.explained(sender.acknowledged) if not quiet else nullcontext():
        sender.send_all(_read_records(parse))
    print_sent(topic, sender.sent_count, quiet=quiet, as_json=as_json)


@dataclass(frozen=True, slots=True)
class LineRules:
    """How a plain line becomes a record."""

    key: bytes | None
    key_separator: bytes | None
    headers: Headers
    partition: int | None
    empty_is_null: bool

    def parse(self, line: bytes) -> JsonRecord:
        key, value = self.key, line
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"no {self.key_separator.decode()!r} between key and value")
        return JsonRecord(
            key=None if self.empty_is_null and not key else key,
            value=None if self.empty_is_null and not value else value,
            headers=self.headers,
            timestamp_ms=None,
            partition=self.partition,
        )


def _json_parser(rules: LineRules) -> Callable[[bytes], JsonRecord]:
    def parse(line: bytes) -> JsonRecord:
        record = from_json_line(line)
        if record.key is None:
            record.key = rules.key
        if rules.partition is not None:
            record.partition = rules.partition
        record.headers = [*record.headers, *rules.headers]
        return record

    return parse


def _timing_parser(
    parse: Callable[[bytes], JsonRecord], delay_seconds: float | None, ttl_seconds: float | None
) -> Callable[[bytes], JsonRecord]:
    """Times count from when a line is read."""

    def parse_and_time(line: bytes) -> JsonRecord:
        record = parse(line)
        now_ms = int(time.time() * 1000)
        times = headers_for(
            not_before_ms=_later(now_ms, delay_seconds), not_after_ms=_later(now_ms, ttl_seconds)
        )
        record.headers = [*record.headers, *times]
        return record

    return parse_and_time


def _later(now_ms: int, seconds: float | None) -> int | None:
    return None if seconds is None else now_ms + int(seconds * 1000)


def _encoding_parser(
    parse: Callable[[bytes], JsonRecord], encode: Callable[[JsonRecord], None]
) -> Callable[[bytes], JsonRecord]:
    def parse_and_encode(line: bytes) -> JsonRecord:
        record = parse(line)
        encode(record)
        return record

    return parse_and_encode


def _read_records(parse: Callable[[bytes], JsonRecord]) -> Iterator[JsonRecord | None]:
    """The records of stdin; None while it has nothing, so that the caller can look around."""
    number = 0
    for line in read_lines(sys.stdin.fileno(), wait_seconds=_IDLE_SECONDS):
        if line is None:
            yield None
            continue
        number += 1
        try:
            yield parse(line)
        except ValueError as wrong:
            raise CommandFailed(f"line {number}: {wrong}; the lines before it were sent") from None


def read_lines(descriptor: int, *, wait_seconds: float) -> Iterator[bytes | None]:
    """Lines without their ends, the last one also if it has none; None after each wait."""
    rest = b""
    while True:
        if not select.select([descriptor], [], [], wait_seconds)[0]:
            yield None
            continue
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _separator(text: str) -> bytes:
    try:
        return unescaped(text)
    except ValueError as wrong:
        raise click.UsageError(f"--key-separator: {wrong}") from None


def _parse_header(header: str) -> tuple[str, bytes | None]:
    name, equals, value = header.partition("=")
    if not name:
        raise click.UsageError(f"--header takes NAME=VALUE, not {header!r}")
    return name, value.encode() if equals else None
