"""`millstream loadgen`: the logs of an invented web site, to a topic or to stdout."""

import sys
import time
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.output import counted, echo, print_json
from millstream.cli.patient_producer import Sender
from millstream.cli.progress import Progress
from millstream.cli.topic_view import require_topic
from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site, TrafficLine

_DELIVERY_SECONDS_MAX: Final = 120.0
_STEP_SECONDS: Final = 0.05


@click.command("loadgen")
@click.option("-t", "--topic", help="The topic to send to; without it, lines go to stdout.")
@click.option(
    "--rate",
    type=click.FloatRange(0.1),
    default=100.0,
    show_default=True,
    help="Approximate lines per second of event time.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this many lines.")
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop after this many seconds of event time.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Same seed, same traffic.")
@click.option(
    "--start",
    "start_ms",
    type=int,
    metavar="MS",
    help="Event time of the first line, in ms since 1970.  [default: now]",
)
@click.option("--fast", is_flag=True, help="As fast as possible, not at the pace of event time.")
@click.option(
    "--bad",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of additional lines that are broken.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no count.")
@json_option
@bootstrap_option
def loadgen(
    topic: str | None,
    rate: float,
    count: int | None,
    seconds: float | None,
    seed: int,
    start_ms: int | None,
    fast: bool,
    bad: float,
    quiet: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Generate the logs of a web shop: visitors, services, hosts, crowds and incidents.

    Records have their source (HOST/LOG) as the key and the event time as the timestamp.

    Example: millstream loadgen --topic logs --rate 500 --for 60
    """
    if as_json and topic is None:
        raise click.UsageError("--json counts what was sent to a --topic")
    start_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
    lines = Site(seed=seed, start_ms=start_ms, lines_per_second=rate).lines()
    if bad:
        lines = with_bad_lines(lines, seed=seed, share=bad)
    if seconds is not None:
        end_ms = start_ms + round(seconds * 1000)
        lines = takewhile(lambda line: line.time_ms < end_ms, lines)
    lines = islice(lines, count)
    if topic is None:
        _print_lines(lines)
        return
    require_topic(bootstrap, topic)
    sender = Sender(bootstrap, topic, delivery_seconds_max=_DELIVERY_SECONDS_MAX)
    progress = Progress(quiet=quiet)
    try:
        _send_lines(sender, lines, progress, start_ms=None if fast else start_ms)
    finally:
        progress.stop()
    if as_json:
        print_json({"topic": topic, "records": sender.acknowledged_count})
    elif not quiet:
        echo(f"sent {counted(sender.acknowledged_count, 'line')} to {topic}", err=True)


def _print_lines(lines: Iterator[TrafficLine]) -> None:
    for line in lines:
        sys.stdout.buffer.write(line.data + b"\n")


def _send_lines(
    sender: Sender, lines: Iterator[TrafficLine], progress: Progress, *, start_ms: int | None
) -> None:
    """With `start_ms`, a line is sent when its event time is reached."""

    def text() -> str:
        rate = sender.acknowledged_count / max(progress.elapsed_seconds, 0.001)
        return f"{sender.acknowledged_count:,} lines acknowledged, {rate:,.0f} lines/s"

    for number, line in enumerate(lines):
        if start_ms is not None:
            while line.time_ms - start_ms > progress.elapsed_seconds * 1000:
                sender.poll(_STEP_SECONDS)
                progress.show(text)
        sender.send(line.data, key=line.source, timestamp_ms=line.time_ms)
        if number % 1000 == 0:
            sender.poll(0)
            progress.show(text)
    sender.finish(_DELIVERY_SECONDS_MAX)
