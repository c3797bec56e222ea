"""`millstream produce`: every line of stdin becomes a record."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from millstream.cli.bootstrap import (
    PARTITIONER,
    bootstrap_option,
    client_settings,
    connect_admin,
    describe_topic,
    explain,
)
from millstream.cli.delayed_acks import Acknowledged, Delay
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.names import TOPIC
from millstream.cli.output import counted, echo
from millstream.cli.progress import Progress
from millstream.cli.record_text import Headers, JsonRecord, from_json_line, unescaped

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_DELIVERY_SECONDS_MAX = 30
_PROGRESS_EVERY_RECORDS = 2_000
_CHECK_EVERY_RECORDS = 1_000
_READ_BYTES = 1 << 20
_IDLE_SECONDS = 0.25
_SEPARATOR_HELP = "Lines are KEY, then TEXT, then VALUE. \\\\t is a tab, \\\\xNN any byte."
# What was sent may still be acknowledged after Ctrl-C.
_INTERRUPTED_SECONDS_MAX = 2.0
# Without an acknowledgement for this long, the broker may be dead.
_SUSPECT_AFTER_SECONDS = 2.0


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help=_SEPARATOR_HELP)
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE")
@click.option("-p", "--partition", type=click.IntRange(0), help="Default: chosen by key.")
@click.option("-z", "--compression", type=click.Choice(_CODECS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="Send an empty value as null.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Lines in the format of `consume -J`.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no count.")
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
    as_json: bool,
    quiet: bool,
    bootstrap: str,
) -> None:
    """Send the lines of stdin to TOPIC, one record each.

    Example: printf 'a:1\\nb:2\\n' | millstream produce orders -K :
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator are mutually exclusive")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    rules = LineRules(
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else _separator(key_separator),
        headers=[_parse_header(header) for header in headers],
        partition=partition,
        empty_is_null=empty_is_null,
    )
    parse = _json_parser(rules) if as_json else rules.parse
    admin = connect_admin(bootstrap)
    describe_topic(admin, topic)
    delay = Delay(admin, topic, is_acks_all=acks == "all")
    watch = BrokerWatch(bootstrap)
    producer = _connect(bootstrap, watch, compression, acks)
    sender = _Sender(topic, producer, watch, Progress(quiet=quiet, plain=False), delay)
    with delay.explained(sender.acknowledged) if not quiet else nullcontext():
        sender.send_all(_read_records(parse))
    if not quiet:
        echo(f"sent {counted(sender.sent_count, 'record')} to {topic}", err=True)


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


class _Sender:
    """Passes records to the client and stops at the first one that the broker refuses."""

    def __init__(
        self,
        topic: str,
        producer: "Producer",
        watch: BrokerWatch,
        progress: Progress,
        delay: Delay,
    ) -> None:
        self.sent_count = 0
        self._delay = delay
        self._topic = topic
        self._producer = producer
        self._watch = watch
        self._progress = progress
        self._refused: KafkaError | None = None
        self._refused_count = 0
        self._acknowledged_at = time.monotonic()

    def send_all(self, records: Iterator[JsonRecord | None]) -> None:
        try:
            self._send_until_refused(records)
            left = self._flush(_DELIVERY_SECONDS_MAX + 5)
        except KeyboardInterrupt:
            raise self._interrupted() from None
        finally:
            self._progress.stop()
        if left or self._is_timeout():
            lost = counted(left + self._refused_count, "record")
            raise self._delay.failure(f"{lost} not acknowledged in {_DELIVERY_SECONDS_MAX} s")
        if self._refused is not None:
            raise explain(self._refused, f"topic {self._topic}")

    def _send_until_refused(self, records: Iterator[JsonRecord | None]) -> None:
        try:
            for number, record in enumerate(records):
                if record is not None:
                    self._send(record)
                self._producer.poll(0)
                if record is None or number % _CHECK_EVERY_RECORDS == 0:
                    self._check_broker()
                if self._refused is not None:
                    break
        except CommandFailed as failed:
            if failed.exit_code != ExitCode.UNREACHABLE:
                # A bad line: what was read before it is sent.
                self._flush(_DELIVERY_SECONDS_MAX + 5)
            raise

    def _interrupted(self) -> CommandFailed:
        left = self._producer.flush(_INTERRUPTED_SECONDS_MAX)
        return CommandFailed(f"interrupted: {self._counts(left)}", exit_code=ExitCode.INTERRUPTED)

    def _counts(self, left: int) -> str:
        acknowledged = counted(self.sent_count, "record")
        return f"{acknowledged} acknowledged, {left + self._refused_count:,} not"

    def _check_broker(self) -> None:
        """Raises CommandFailed if no broker answers, where the client would retry silently."""
        now = time.monotonic()
        if not len(self._producer):
            self._acknowledged_at = now
        elif now - self._acknowledged_at > _SUSPECT_AFTER_SECONDS:
            self._watch.suspect()
        try:
            self._watch.check()
        except CommandFailed as gone:
            left = len(self._producer)
            raise CommandFailed(
                f"{gone} ({self._counts(left)})", exit_code=gone.exit_code
            ) from None

    def _is_timeout(self) -> bool:
        from confluent_kafka import KafkaError

        return self._refused is not None and self._refused.code() == KafkaError._MSG_TIMED_OUT

    def acknowledged(self) -> Acknowledged:
        """For the watching thread: acknowledgements arrive while stdin is waited for."""
        self._producer.poll(0)
        return Acknowledged(self.sent_count, len(self._producer))

    def _send(self, record: JsonRecord) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=[*record.headers],
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                # The client's queue is full: deliveries make room.
                self._producer.poll(0.1)
                self._check_broker()
            except KafkaException as failed:
                raise explain(failed.args[0], f"topic {self._topic}") from None

    def _flush(self, seconds_max: float) -> int:
        deadline = time.monotonic() + seconds_max
        while (left := self._producer.flush(0.25)) and time.monotonic() < deadline:
            self._check_broker()
            self._progress.show(self._progress_text)
        return left

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        self._acknowledged_at = time.monotonic()
        if error is None:
            self.sent_count += 1
            if self.sent_count % _PROGRESS_EVERY_RECORDS == 0:
                self._progress.show(self._progress_text)
        else:
            self._refused_count += 1
            self._refused = self._refused or error

    def _progress_text(self) -> str:
        return f"sent {self.sent_count:,} records"


def _connect(bootstrap: str, watch: BrokerWatch, compression: str, acks: str) -> "Producer":
    from confluent_kafka import Producer

    return Producer(
        {
            **client_settings(bootstrap),
            "partitioner": PARTITIONER,
            "error_cb": watch.on_error,
            "compression.type": compression,
            "acks": acks,
            # Retries must not reorder or repeat lines; only acks=all can promise that.
            "enable.idempotence": acks == "all",
            "message.timeout.ms": _DELIVERY_SECONDS_MAX * 1000,
            "linger.ms": 5,
        }
    )


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
