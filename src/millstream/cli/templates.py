"""`millstream templates`: which kinds of messages files or topics have, and how many of each."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, counted, echo, print_json, print_table
from millstream.cli.pipeline_check import read_sample
from millstream.cli.pipeline_file import check_functions, load_file
from millstream.cli.spark_process import check_installed
from millstream.pipeline.spec import Spec, parse_spec

if TYPE_CHECKING:
    from millstream.lines.templates import Template, Templates

_RECORDS_MAX: Final = 1_000
_SHOWN_CHARACTERS: Final = 160

Record = tuple[bytes | None, bytes | None, int]


@click.command("templates")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|TOPIC...")
@click.option(
    "--before",
    metavar="FILE|TOPIC",
    help="Compare with older lines: which templates are new, and which have vanished.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Show this many, the most frequent first.",
)
@click.option(
    "--lines",
    "lines_max",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="At most this many: the first of each file, the last of each partition.",
)
@click.option(
    "--pipeline",
    "pipeline_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Parse as this pipeline does: its formats, patterns and functions.",
)
@json_option
@bootstrap_option
def templates(
    sources: tuple[str, ...],
    before: str | None,
    top: int,
    lines_max: int,
    pipeline_file: Path | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Group the messages of log lines by template, such as `connected to <*> after <*> ms`.

    What exists as a file is read as one, anything else is a topic. Commits and stores nothing.

    Example: millstream templates app.log --before app.log.1
    """
    check_installed()
    from millstream.lines.templates import Templates

    spec = parse_spec("", folder=Path()) if pipeline_file is None else load_file(pipeline_file)
    check_functions(spec)
    found = Templates()
    if before is not None:
        _add(found, spec, _records(before, lines_max, bootstrap))
        found.begin_period()
    lines = sum(_add(found, spec, _records(each, lines_max, bootstrap)) for each in sources)
    shown = _chosen(found.found(), top=top)
    if as_json:
        print_json(_as_json(found, shown, lines=lines, is_compared=before is not None))
    else:
        _print(found, shown, lines=lines, is_compared=before is not None)


def _records(source: str, lines_max: int, bootstrap: str) -> Iterator[Record]:
    if Path(source).is_file():
        sample = read_sample(Path(source), lines_max)
        return ((sample.source.encode(), line, sample.time_ms) for line in sample.lines)
    if "/" in source:
        raise CommandFailed(f"{source} is not a file")
    return _topic_records(source, lines_max, bootstrap)


def _topic_records(topic: str, lines_max: int, bootstrap: str) -> Iterator[Record]:
    """Partition by partition: read in any other order, they would give other templates."""
    from millstream.cli.topic_view import require_topic
    from millstream.cli.transfer import open_reading
    from millstream.client.start_position import parse_range

    require_topic(bootstrap, topic)
    span = parse_range(f"-{lines_max}", now=datetime.now(UTC))
    records = []
    with closing(open_reading(bootstrap, topic, span, is_bounded=True)) as reading:
        while not reading.is_over():
            records += reading.take(_RECORDS_MAX)
    records.sort(key=lambda record: (record.partition, record.offset))
    return ((record.key, record.value, record.timestamp_ms) for record in records)


def _add(found: "Templates", spec: Spec, records: Iterator[Record]) -> int:
    """How many lines there were."""
    from millstream.pipeline.message_templates import messages_of

    count = 0
    for messages in messages_of(spec, records):
        found.add(messages)
        count += len(messages)
    return count


def _chosen(templates: "list[Template]", *, top: int) -> "list[Template]":
    """The most frequent, then those that have vanished."""
    from millstream.lines.templates import most_frequent

    gone = [template for template in templates if template.has_vanished]
    gone.sort(key=lambda template: -template.counts[-2])
    return most_frequent(templates, top) + gone[:top]


def _state(template: "Template", *, is_compared: bool) -> str | None:
    if not is_compared:
        return None
    return "new" if template.is_new else "vanished" if template.has_vanished else None


def _as_json(
    found: "Templates", shown: "list[Template]", *, lines: int, is_compared: bool
) -> JsonValue:
    return {
        "lines": lines,
        "messages": found.messages,
        "others": found.others,
        "templates": [
            {
                "template": each.text,
                "count": each.count,
                "before": each.counts[-2] if is_compared else None,
                "state": _state(each, is_compared=is_compared),
                "sample": each.sample,
            }
            for each in shown
        ],
    }


def _print(found: "Templates", shown: "list[Template]", *, lines: int, is_compared: bool) -> None:
    headings = ["COUNT", "SHARE", *(["BEFORE", "STATE"] if is_compared else []), "TEMPLATE"]
    rows = []
    for each in shown:
        compared = [each.counts[-2], _state(each, is_compared=True)] if is_compared else []
        share = f"{100 * each.count / found.messages:.1f}%" if found.messages else "-"
        rows.append([each.count, share, *compared, each.text[:_SHOWN_CHARACTERS]])
    print_table(headings, rows)
    text = f"{counted(lines, 'line')}, {counted(len(found.found()), 'template')}"
    if found.messages < lines:
        text += f"; {lines - found.messages:,} have no message"
    if found.others:
        text += f"; {found.others:,} fit none, and there was no room for more templates"
    echo(text, err=True)
