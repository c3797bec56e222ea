"""`millstream pipeline check`: which lines of files a pipeline can parse, and which not."""

import itertools
import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.output import counted, echo, print_json, print_table
from millstream.cli.pipeline_file import check_functions, load_file
from millstream.cli.ship import make_joiner, source_text
from millstream.cli.spark_process import check_installed
from millstream.ingest.lines import Joiner, Line, LineSplitter
from millstream.pipeline.spec import parse_spec

if TYPE_CHECKING:
    from millstream.pipeline.checking import Advice, Checked, Sample

_READ_BYTES: Final = 1 << 20
# For each file: a sample is held in memory, whatever its lines are.
_SAMPLE_BYTES_MAX: Final = 64 << 20
# As `ship` splits them.
_LINE_BYTES_MAX: Final = 900_000


@click.command("check")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
@click.option(
    "--lines",
    "lines_max",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="At most this many lines of each file, from its start.",
)
@click.option(
    "--failed",
    "failed_shown",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Show this many lines of each file that cannot be parsed.",
)
@click.option(
    "--pipeline",
    "pipeline_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Parse as this pipeline does: its formats, functions and time zone.",
)
@click.option(
    "--join-traces",
    is_flag=True,
    help="Take a stack trace as part of the line before it, as `ship --join-traces` does.",
)
@click.option(
    "--first-line",
    metavar="TEXT",
    help="Take a block of lines as one record, as `ship --first-line` does.",
)
@json_option
def check(
    files: tuple[Path, ...],
    lines_max: int,
    failed_shown: int,
    pipeline_file: Path | None,
    join_traces: bool,
    first_line: str | None,
    as_json: bool,
) -> None:
    """Try the parser on FILES: formats, the share of parsed lines, and the first it cannot parse.

    For lines that it cannot parse it suggests a pattern, as text for the pipeline file, or how to
    join them if several lines are one record.
    Sends and stores nothing. Needs no broker and no Java.
    """
    check_installed()
    from millstream.pipeline.checking import check_samples

    spec = parse_spec("", folder=Path()) if pipeline_file is None else load_file(pipeline_file)
    check_functions(spec)
    samples = [read_sample(path, lines_max) for path in files]
    joiners = [make_joiner(join_traces=join_traces, first_line=first_line) for _ in samples]
    samples = [_joined(*each) for each in zip(samples, joiners, strict=True)]
    found = check_samples(spec, samples, failed_shown=failed_shown)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        _print(found)


def read_sample(path: Path, lines_max: int) -> "Sample":
    from millstream.pipeline.checking import Sample

    splitter = LineSplitter(position=0, line_bytes_max=_LINE_BYTES_MAX)
    lines: list[bytes] = []
    numbers: list[int] = []
    number = 1
    with path.open("rb") as file:
        while len(lines) < lines_max and file.tell() < _SAMPLE_BYTES_MAX:
            data = file.read(_READ_BYTES)
            found = splitter.split(data) if data else splitter.flush()
            for line in found:
                # `ship` sends no empty lines either.
                if line.data:
                    lines.append(line.data)
                    numbers.append(number)
                number += line.is_complete
            if not data:
                break
    time_ms = path.stat().st_mtime_ns // 1_000_000
    # Two files may have one name; a source of the pipeline has the host in front.
    source = source_text(f"{os.uname().nodename}/{path}")
    return Sample(source, time_ms, lines[:lines_max], numbers[:lines_max])


def _joined(sample: "Sample", joiner: Joiner | None) -> "Sample":
    if joiner is None:
        return sample
    joined = joiner.join(Line(data, 0) for data in sample.lines)
    lines = [line.data for line in (*joined, *joiner.flush())]
    counts = [line.count(b"\n") + 1 for line in lines]
    begins = itertools.accumulate(counts, initial=0)
    numbers = [sample.number(begin) for begin, _ in zip(begins, lines, strict=False)]
    return replace(sample, lines=lines, numbers=numbers)


def _print(found: "list[Checked]") -> None:
    rows = [
        (
            each.source.partition("/")[2],
            each.lines,
            f"{100 * each.read / each.lines:.2f}%" if each.lines else "-",
            ", ".join(f"{name} {count:,}" for name, count in each.formats.items()) or "-",
        )
        for each in found
    ]
    print_table(["FILE", "LINES", "READ", "FORMATS"], rows)
    for each in found:
        for failed in each.failed:
            name = each.source.partition("/")[2]
            echo(f"{name}:{failed.line}: {failed.detail}: {failed.text!r}", err=True)
    for each in found:
        if each.advice is not None:
            _print_advice(each.source.partition("/")[2], each.advice)
    lines, read = sum(each.lines for each in found), sum(each.read for each in found)
    share = 100 * (lines - read) / lines if lines else 0.0
    echo(f"{counted(lines, 'line')}, {lines - read:,} not parsed ({share:.2f} %)", err=True)


def _print_advice(name: str, advice: "Advice") -> None:
    if advice.join_traces:
        echo(
            f"\nMost of the other lines of {name} continue the line before them, as a stack trace "
            "does. Send and check the file with --join-traces\n",
            err=True,
        )
    elif advice.pattern is None:
        echo(
            f"\nNo time was found in the other lines of {name}. Every record needs one, so this "
            "file is not a log by lines; only a function could parse it\n",
            err=True,
        )
    elif advice.first_line is None:
        echo(f"\nThis pattern reads most of the other lines of {name}:", err=True)
        _print_pattern(name, advice.pattern)
    else:
        option = f"--first-line {shlex.quote(advice.first_line)}"
        echo(
            f"\nRecords of {name} are blocks of lines, of which the first has the time. "
            f"Send and check the file with\n{option}\nand this pattern:",
            err=True,
        )
        _print_pattern(name, advice.pattern)


def _print_pattern(name: str, pattern: str) -> None:
    """As it is written into a pipeline file."""
    echo("[[parse.sources]]", err=True)
    echo(f"match = {_quoted('*' + Path(name).name)}", err=True)
    echo(f"pattern = {_quoted(pattern)}\n", err=True)


def _quoted(text: str) -> str:
    """A text of TOML, without escapes where it can be."""
    if "'" not in text and "\n" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
