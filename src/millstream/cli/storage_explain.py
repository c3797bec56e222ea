"""`millstream storage index|explain|cache|forecast`: how the log works, on real files."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.client.start_position import FromOffset, FromTime, parse_start
from millstream.storage.inspect import SegmentInfo, list_segments
from millstream.storage.inspection.of_files import (
    Explanation,
    Probe,
    Removal,
    TimeExplanation,
    cached_pages_of,
    explain_offset,
    explain_time,
    forecast,
    read_offset_index,
    read_time_index,
)

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def _segments(directory: Path) -> list[SegmentInfo]:
    found = list_segments(directory)
    if not found:
        raise CommandFailed(f"{directory} has no segments")
    return found


def _of_one_partition(directory: Path) -> list[SegmentInfo]:
    found = _segments(directory)
    names = sorted({info.partition for info in found})
    if len(names) > 1:
        raise CommandFailed(f"{directory} has several partitions; name one: {directory / names[0]}")
    return found


@click.command()
@click.argument("directory", type=_DIRECTORY, metavar="PARTITION-DIR")
@json_option
def index(directory: Path, as_json: bool) -> None:
    """Show the entries of a partition's indexes: offsets to positions, times to offsets."""
    found = _of_one_partition(directory)
    offsets = [(info, entry) for info in found for entry in read_offset_index(info)]
    times = [(info, entry) for info in found for entry in read_time_index(info)]
    if as_json:
        print_json(
            {
                "offsets": [
                    {"segment": i.base_offset, "offset": e.offset, "position": e.position}
                    for i, e in offsets
                ],
                "times": [
                    {"segment": i.base_offset, "timestamp": e.timestamp_ms, "offset": e.offset}
                    for i, e in times
                ],
            }
        )
        return
    print_table(
        ["SEGMENT", "OFFSET", "POSITION"],
        [(i.base_offset, e.offset, e.position) for i, e in offsets],
    )
    echo()
    print_table(
        ["SEGMENT", "TIME", "OFFSET"],
        [(i.base_offset, _date(e.timestamp_ms), e.offset) for i, e in times],
    )


@click.command()
@click.argument("directory", type=_DIRECTORY, metavar="PARTITION-DIR")
@click.argument("where", metavar="OFFSET|@TIME")
@json_option
def explain(directory: Path, where: str, as_json: bool) -> None:
    """Show how a fetch finds an offset or a time: segment, index probes, bytes scanned.

    Example: millstream storage explain data/orders-0 12345
    """
    try:
        start = parse_start(where, now=datetime.now(UTC))
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    found = _of_one_partition(directory)
    by_time = None
    match start:
        case FromOffset(offset=offset):
            wanted: int | None = offset
        case FromTime(timestamp_ms=timestamp_ms):
            by_time = explain_time(found, timestamp_ms)
            wanted = by_time.offset
        case _:
            raise click.UsageError("name an offset, or a time as @2026-01-31 or @-1h")
    by_offset = None if wanted is None else explain_offset(found, wanted)
    if as_json:
        print_json({"time": _time_json(by_time), "fetch": _fetch_json(by_offset)})
        return
    if by_time is not None:
        _print_time(by_time)
    if by_offset is not None:
        _print_fetch(by_offset)


def _print_time(found: TimeExplanation) -> None:
    echo(f"looking for the first record at or after {_date(found.timestamp_ms)}")
    if found.segment is None:
        echo("  there are no segments")
        return
    echo(f"  {counted(found.segments_skipped, 'older segment')} ruled out by the newest timestamps")
    echo(f"  segment   {found.segment.path.name}")
    _print_probes(found.probes, "timestamp", "timeindex")
    if found.offset is None:
        echo("  result    no record is that new: reading starts at the end")
    else:
        echo(f"  result    the batch that starts at offset {found.offset}\n")


def _print_fetch(found: Explanation) -> None:
    echo(f"fetching offset {found.offset}")
    echo(f"  segment   {found.segment.path.name}, one of {found.segments}")
    _print_probes(found.probes, "offset", "index")
    if found.entry is None:
        echo("  entry     none at or below it: the scan starts at the segment's first byte")
    else:
        echo(f"  entry     offset {found.entry.offset} is at position {found.entry.position}")
    scanned = counted(found.batches_scanned, "batch header")
    echo(f"  scanned   {scanned}, {found.bytes_scanned:,} bytes skipped")
    if found.batch_position is None:
        echo("  result    no batch with it: a consumer waits for the next record")
        return
    cached = "in memory" if found.is_batch_cached else "on disk only"
    echo(
        f"  result    batch {found.batch_base_offset}..{found.batch_last_offset} at position"
        f" {found.batch_position}, {found.batch_bytes:,} bytes, {cached}"
    )


def _print_probes(probes: Sequence[Probe], what: str, file: str) -> None:
    if not probes:
        echo(f"  {file:9} no entries")
    for number, probe in enumerate(probes):
        side = "right" if probe.is_below else "left"
        head = file if number == 0 else ""
        echo(f"  {head:9} entry {probe.number}: {what} {probe.key}, go {side}")


def _probes_json(probes: Sequence[Probe]) -> JsonValue:
    return [{"entry": p.number, "key": p.key, "below": p.is_below} for p in probes]


def _time_json(found: TimeExplanation | None) -> JsonValue:
    if found is None:
        return None
    return {
        "timestamp": found.timestamp_ms,
        "segments_skipped": found.segments_skipped,
        "segment": None if found.segment is None else found.segment.base_offset,
        "probes": _probes_json(found.probes),
        "offset": found.offset,
    }


def _fetch_json(found: Explanation | None) -> JsonValue:
    if found is None:
        return None
    return {
        "offset": found.offset,
        "segment": found.segment.base_offset,
        "probes": _probes_json(found.probes),
        "entry": None
        if found.entry is None
        else {"offset": found.entry.offset, "position": found.entry.position},
        "batches_scanned": found.batches_scanned,
        "bytes_scanned": found.bytes_scanned,
        "batch": None
        if found.batch_position is None
        else {
            "position": found.batch_position,
            "base_offset": found.batch_base_offset,
            "last_offset": found.batch_last_offset,
            "size_bytes": found.batch_bytes,
            "cached": found.is_batch_cached,
        },
    }


@click.command()
@click.argument("directory", type=_DIRECTORY, metavar="DIR")
@json_option
def cache(directory: Path, as_json: bool) -> None:
    """Show how much of each segment is in the page cache, and how much is not on disk yet."""
    rows = [(info, cached_pages_of(info.path)) for info in _segments(directory)]
    if all(pages is None for _, pages in rows):
        raise CommandFailed("this system does not say what is cached: it needs Linux 6.5 or later")
    if as_json:
        print_json(
            [
                {
                    "partition": info.partition,
                    "base_offset": info.base_offset,
                    "pages": None if pages is None else pages.pages,
                    "cached": None if pages is None else pages.cached,
                    "dirty": None if pages is None else pages.dirty,
                }
                for info, pages in rows
            ]
        )
        return
    print_table(
        ["PARTITION", "BASE-OFFSET", "BYTES", "PAGES", "CACHED", "DIRTY", "PERCENT"],
        [
            (
                *(info.partition, info.base_offset, info.size_bytes),
                *(pages.pages, pages.cached, pages.dirty, round(100 * pages.cached_share)),
            )
            for info, pages in rows
            if info.size_bytes and pages
        ],
    )


@click.command("forecast")
@click.argument("directory", type=_DIRECTORY, metavar="DIR")
@click.option(
    "--retention-ms",
    type=click.IntRange(-1),
    default=7 * 86_400_000,
    show_default=True,
    help="The topic's retention.ms; -1 is no limit.",
)
@click.option(
    "--retention-bytes",
    type=click.IntRange(-1),
    default=-1,
    show_default=True,
    help="The topic's retention.bytes; -1 is no limit.",
)
@json_option
def forecast_command(
    directory: Path, retention_ms: int, retention_bytes: int, as_json: bool
) -> None:
    """Show what retention removes next from each partition, and when.

    The files do not hold the topic's options: give those that `millstream topic describe` shows.
    """
    found = _segments(directory)
    now_ms = time.time_ns() // 1_000_000
    removals: list[Removal] = []
    for name in sorted({info.partition for info in found}):
        removals += forecast(
            [info for info in found if info.partition == name],
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            now_ms=now_ms,
        )
    if as_json:
        print_json(
            [
                {
                    "partition": each.segment.partition,
                    "base_offset": each.segment.base_offset,
                    "size_bytes": each.segment.size_bytes,
                    "active": each.is_active,
                    "by_time": each.by_time_ms,
                    "by_size_after_bytes": each.by_size_after_bytes,
                }
                for each in removals
            ]
        )
        return
    shown = [each for each in removals if each.segment.size_bytes]
    print_table(
        ["PARTITION", "BASE-OFFSET", "BYTES", "BY-TIME", "BY-SIZE-AFTER-BYTES", "ACTIVE"],
        [
            (
                each.segment.partition,
                each.segment.base_offset,
                each.segment.size_bytes,
                _when(each.by_time_ms, now_ms),
                each.by_size_after_bytes,
                "yes" if each.is_active else "no",
            )
            for each in shown
        ],
    )


def _when(timestamp_ms: int | None, now_ms: int) -> str | None:
    if timestamp_ms is None:
        return None
    return "now" if timestamp_ms <= now_ms else _date(timestamp_ms)


def _date(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        # A record may hold any 64-bit number.
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
