"""`millstream storage`: inspects the files of any data directory, including Apache Kafka's.

All commands except `compact` only read and take no lock, so they may inspect a directory that
a broker is using.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.lazy import AliasGroup, LazyCommand
from millstream.cli.output import JsonValue, counted, echo, json_text, print_json, print_table
from millstream.cli.record_text import TextRecord, to_json_line, to_terminal_json_line
from millstream.storage.inspect import BatchInfo, SegmentInfo, dump, list_segments, verify

_PATH = click.Path(exists=True, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


_COMMANDS = {
    "index": LazyCommand(
        "millstream.cli.storage_explain", "index", "Show the entries of a partition's indexes."
    ),
    "explain": LazyCommand(
        "millstream.cli.storage_explain", "explain", "Show how a fetch finds an offset or a time."
    ),
    "cache": LazyCommand(
        "millstream.cli.storage_explain", "cache", "Show what is in the page cache."
    ),
    "forecast": LazyCommand(
        "millstream.cli.storage_explain", "forecast_command", "Show what retention removes next."
    ),
    "compact": LazyCommand(
        "millstream.cli.storage_compact", "compact", "Compact topics now, and wait for it."
    ),
}


@click.group(cls=AliasGroup, table=_COMMANDS)
def storage() -> None:
    """Inspect the files of a data directory, and compact topics."""


@storage.command()
@click.argument("directory", type=_DIRECTORY, metavar="DIR")
@json_option
def segments(directory: Path, as_json: bool) -> None:
    """List the segments of a data directory or of one partition."""
    with _reading(directory):
        found = _segments_in(directory)
    if as_json:
        print_json(
            [
                {
                    "partition": info.partition,
                    "base_offset": info.base_offset,
                    "size_bytes": info.size_bytes,
                    "index_bytes": info.index_bytes,
                    "time_index_bytes": info.time_index_bytes,
                    "modified_ms": info.modified_ms,
                    "path": str(info.path),
                }
                for info in found
            ]
        )
        return
    # Fifty empty partitions of __consumer_offsets would hide the user's own.
    shown = [info for info in found if info.size_bytes or not info.partition.startswith("__")]
    headings = ["PARTITION", "BASE-OFFSET", "BYTES", "INDEX-BYTES", "TIMEINDEX-BYTES", "MODIFIED"]
    print_table(headings, [_segment_row(info) for info in shown])
    if len(shown) < len(found):
        hidden = counted(len(found) - len(shown), "empty segment")
        echo(f"{hidden} of internal topics hidden; --json shows all", err=True)


@storage.command("dump")
@click.argument("path", type=_PATH, metavar="DIR|FILE")
@click.option("-r", "--records", is_flag=True, help="Show the records inside the batches.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per batch and line.")
def dump_batches(path: Path, records: bool, as_json: bool) -> None:
    """Show the batches of a segment file, a partition or a data directory."""
    if path.is_file() and path.suffix != ".log":
        raise CommandFailed(f"{path} is not a .log file of a partition", exit_code=ExitCode.USAGE)
    shown: Path | None = None
    with _reading(path):
        if path.is_dir():
            _segments_in(path)
        for batch in dump(path, records=records):
            if as_json:
                click.echo(_batch_json(batch))
                continue
            if batch.path != shown:
                shown = batch.path
                echo(str(shown))
            _print_batch(batch)


@storage.command("verify")
@click.argument("directory", type=_DIRECTORY, metavar="DIR")
@json_option
def verify_files(directory: Path, as_json: bool) -> None:
    """Check every log, index and checkpoint; exit code 1 if something is wrong."""
    with _reading(directory):
        segments_text = counted(len(_segments_in(directory)), "segment")
        findings = list(verify(directory))
    if as_json:
        print_json(
            [
                {"path": str(each.path), "position": each.position, "message": each.message}
                for each in findings
            ]
        )
    else:
        for each in findings:
            where = f"{each.path}@{each.position}" if each.position >= 0 else str(each.path)
            echo(f"{where}: {each.message}")
    if findings:
        raise CommandFailed(f"{counted(len(findings), 'problem')} in {segments_text}")
    echo(f"{segments_text}, nothing wrong", err=True)


def _segments_in(directory: Path) -> list[SegmentInfo]:
    """A directory without any is probably the wrong one; a fresh data directory has a
    meta.properties."""
    found = list_segments(directory)
    if not found and not (directory / "meta.properties").exists():
        raise CommandFailed(f"{directory} has no partitions and is not a data directory")
    return found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # Our own output, not the directory.
        raise
    except OSError as failed:
        where = failed.filename or path
        raise CommandFailed(f"cannot read {where}: {failed.strerror or failed}") from None


def _segment_row(info: SegmentInfo) -> list[object]:
    modified = datetime.fromtimestamp(info.modified_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sizes = [info.size_bytes, info.index_bytes, info.time_index_bytes]
    return [info.partition, info.base_offset, *sizes, modified]


def _print_batch(batch: BatchInfo) -> None:
    flags = [
        name
        for name, is_set in [
            ("transactional", batch.is_transactional),
            ("control", batch.is_control),
            ("BAD-CRC", not batch.is_crc_valid),
        ]
        if is_set
    ]
    producer = (
        f" producer={batch.producer_id}/{batch.producer_epoch} sequence={batch.base_sequence}"
        if batch.producer_id >= 0
        else ""
    )
    echo(
        f"  @{batch.position} offsets={batch.base_offset}..{batch.last_offset} "
        f"records={batch.record_count} bytes={batch.size_bytes} codec={batch.codec} "
        f"epoch={batch.leader_epoch} {batch.timestamp_type}={batch.max_timestamp_ms}"
        f"{producer}{''.join(' ' + flag for flag in flags)}"
    )
    for record in _text_records(batch):
        click.echo(b"    " + to_terminal_json_line(record), nl=False)


def _batch_json(batch: BatchInfo) -> str:
    fields: dict[str, JsonValue] = {
        "path": str(batch.path),
        "position": batch.position,
        "size_bytes": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "record_count": batch.record_count,
        "leader_epoch": batch.leader_epoch,
        "codec": batch.codec,
        "timestamp_type": batch.timestamp_type,
        "base_timestamp": batch.base_timestamp_ms,
        "max_timestamp": batch.max_timestamp_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "is_crc_valid": batch.is_crc_valid,
        "records": [json.loads(to_json_line(record)) for record in _text_records(batch)],
    }
    return json_text(fields)


def _text_records(batch: BatchInfo) -> Iterator[TextRecord]:
    # Control records are in no topic's data, but their bytes print like any others.
    topic, _, partition = batch.path.parent.name.rpartition("-")
    for record in batch.records:
        yield TextRecord(
            topic=topic,
            partition=int(partition) if partition.isdigit() else 0,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
