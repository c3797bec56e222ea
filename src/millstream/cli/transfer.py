"""`millstream export`, `import` and `mirror`: records to files, from files, to other clusters."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.client_options import BOOTSTRAP, other_client_options, read_client_file
from millstream.cli.connection import Cluster
from millstream.cli.consume import Reading, connect, find_bounds, find_places
from millstream.cli.delayed_acks import Delay
from millstream.cli.example_topic import create_topics
from millstream.cli.failure import CommandFailed
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.names import TOPIC
from millstream.cli.output import counted, echo, print_json
from millstream.cli.profiles import load_profiles, profile_options
from millstream.cli.progress import Progress
from millstream.cli.record_files import open_writer, read_record_file
from millstream.cli.record_sender import RecordSender, connect_producer, print_sent
from millstream.cli.record_text import JsonRecord, TextRecord
from millstream.cli.topic_view import require_topic, topic_partitions
from millstream.client.start_position import Range, parse_range

F = TypeVar("F", bound=Callable[..., object])

_BATCH_RECORDS_MAX = 1_000
_RANGE_HELP = (
    "beginning, end, N, -N, @TIME, or a range such as 100:200 or @-2h:@-1h.  [default: beginning]"
)


def _range_option(command: F) -> F:
    return click.option(
        *("-o", "--offset", "range_text"),
        default="beginning",
        metavar="START[:END]",
        help=_RANGE_HELP,
    )(command)


def _parse(text: str) -> Range:
    try:
        return parse_range(text, now=datetime.now(UTC))
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None


def open_reading(bootstrap: str, topic: str, span: Range, *, is_bounded: bool) -> Reading:
    with Cluster(bootstrap) as cluster:
        bounds = find_bounds(cluster, find_places(cluster, [topic], []), span)
    watch = BrokerWatch(bootstrap)
    reading = Reading(connect(bootstrap, watch), watch)
    reading.assign(bounds, is_bounded=is_bounded or span.end is not None)
    return reading


@click.command("export")
@click.argument("topic", type=TOPIC)
@click.option(
    "--to",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Ends with .jsonl or .parquet.",
)
@_range_option
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no count.")
@json_option
@bootstrap_option
def export(
    topic: str, path: Path, range_text: str, quiet: bool, as_json: bool, bootstrap: str
) -> None:
    """Write the records of TOPIC to a file: JSON lines or Parquet, by its name.

    Ends at the end that the topic has when the command starts. A FILE that exists is replaced
    when all records are written.

    Example: millstream export orders --to orders.parquet -o @-1d
    """
    count = 0
    progress = Progress(quiet=quiet)
    span = _parse(range_text)

    def text() -> str:
        return f"{count:,} records written"

    # Refuses a name with another ending; nothing is opened yet.
    open_writer(path)
    with (
        _replacing(path) as new,
        open_writer(new) as writer,
        closing(open_reading(bootstrap, topic, span, is_bounded=True)) as reading,
    ):
        try:
            for records in _batches(reading):
                writer.write(records)
                count += len(records)
                progress.show(text)
        finally:
            progress.stop()
    if as_json:
        print_json({"topic": topic, "records": count, "file": str(path)})
    elif not quiet:
        echo(f"wrote {counted(count, 'record')} to {path}", err=True)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Where to write what becomes the file at the end, if nothing fails.

    A pipe, a device, and a file in a folder that takes no other are written to themselves.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    # Hidden from those who read all files of the folder.
    new = target.with_name(f".{target.name}.{os.getpid()}{path.suffix}")
    try:
        new.touch()
    except OSError as failed:
        if not os.access(target, os.W_OK):
            raise CommandFailed(f"{path}: {failed.strerror}") from None
        yield path
        return
    try:
        if target.exists():
            shutil.copymode(target, new)
        yield new
        try:
            new.replace(target)
        except OSError as failed:
            raise CommandFailed(f"{path}: {failed.strerror}") from None
    finally:
        new.unlink(missing_ok=True)


def _batches(reading: Reading) -> Iterator[list[TextRecord]]:
    while not reading.is_over():
        yield reading.take(_BATCH_RECORDS_MAX)


@click.command("import")
@click.argument("topic", type=TOPIC)
@click.option(
    "--from",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Ends with .jsonl or .parquet.",
)
@click.option(
    "--keep-partitions",
    is_flag=True,
    help="Send to the partitions of the file, not to those of the keys.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no count.")
@json_option
@bootstrap_option
def import_file(
    topic: str, path: Path, keep_partitions: bool, quiet: bool, as_json: bool, bootstrap: str
) -> None:
    """Send the records of a file to TOPIC, with their keys, headers and timestamps.

    Reads what `export` writes, and Parquet files of others that have a column value.

    Example: millstream import orders --from orders.parquet
    """
    records = read_record_file(path)
    sender = _sender(bootstrap, topic, quiet=quiet)
    sender.send_all(_placed(records, keep=keep_partitions))
    print_sent(topic, sender.sent_count, quiet=quiet, as_json=as_json)


def _placed(records: Iterator[JsonRecord], *, keep: bool) -> Iterator[JsonRecord]:
    for record in records:
        if not keep:
            record.partition = None
        yield record


def _sender(bootstrap: str, topic: str, *, quiet: bool) -> RecordSender:
    require_topic(bootstrap, topic)
    watch = BrokerWatch(bootstrap)
    return RecordSender(
        topic,
        connect_producer(bootstrap, watch, "lz4", "all"),
        watch,
        Progress(quiet=quiet),
        Delay(bootstrap, topic, is_acks_all=True),
    )


@click.command("mirror")
@click.argument("topic", type=TOPIC)
@click.option("--to", "target", metavar="HOST:PORT", help="The other cluster.")
@click.option(
    "--to-config",
    "target_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Client options for the other cluster alone, such as its address and login.",
)
@click.option("--to-profile", "target_profile", metavar="NAME", help="The same, from a profile.")
@click.option("--as", "name", metavar="TOPIC", help="Its name there.  [default: the same]")
@_range_option
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end of every partition.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no count.")
@json_option
@bootstrap_option
def mirror(
    topic: str,
    target: str | None,
    target_file: Path | None,
    target_profile: str | None,
    name: str | None,
    range_text: str,
    exit_at_end: bool,
    quiet: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Copy the records of TOPIC to a topic of another cluster, and keep copying.

    Keys, headers, timestamps and partitions stay the same; offsets do not. The topic is created
    with as many partitions if it does not exist. After a stop, continue with -o: records that were
    sent but not acknowledged may be there twice.

    The options of -X, --config and the profile in use are for the source. They are also for the
    target, unless --to-config or --to-profile has others.

    Examples:

      millstream mirror orders -b old:9092 --to new:9092 -e

      millstream mirror orders --config old.properties --to-config new.properties
    """
    span, copied = _parse(range_text), name or topic
    there = _target_options(target_file, target_profile)
    target = target or (there or {}).get(BOOTSTRAP)
    if target is None:
        raise click.UsageError(f"name the other cluster: --to, or {BOOTSTRAP} in its options")
    with Cluster(bootstrap) as cluster:
        partitions = len(topic_partitions(cluster, topic))
    with _clients_of(there):
        _create_copy(target, copied, partitions)
    with closing(open_reading(bootstrap, topic, span, is_bounded=exit_at_end)) as reading:
        with _clients_of(there):
            sender = _sender(target, copied, quiet=quiet)
        sender.send_all(_copied(reading))
    if as_json:
        print_json({"topic": copied, "records": sender.sent_count, "bootstrap": target})
    elif not quiet:
        echo(f"copied {counted(sender.sent_count, 'record')} to {copied} at {target}", err=True)


def _target_options(file: Path | None, profile: str | None) -> dict[str, str] | None:
    """None: those of the source."""
    if file is not None and profile is not None:
        raise click.UsageError("--to-config and --to-profile are mutually exclusive")
    if file is not None:
        return read_client_file(file)
    return None if profile is None else dict(profile_options(load_profiles(), profile))


def _clients_of(options: dict[str, str] | None) -> AbstractContextManager[None]:
    return nullcontext() if options is None else other_client_options(options)


def _create_copy(target: str, topic: str, partitions: int) -> None:
    with Cluster(target) as cluster:
        create_topics(cluster, {topic: partitions})
        present = len(topic_partitions(cluster, topic))
    if present < partitions:
        raise click.UsageError(
            f"{topic} has {counted(present, 'partition')} at {target}, and the source has"
            f" {partitions}; add partitions there first"
        )


def _copied(reading: Reading) -> Iterator[JsonRecord | None]:
    """None while nothing arrives, so that the sender can look around."""
    for records in _batches(reading):
        if not records:
            yield None
        for record in records:
            yield JsonRecord(
                record.key, record.value, record.headers, record.timestamp_ms, record.partition
            )
