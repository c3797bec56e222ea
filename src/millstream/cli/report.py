"""`millstream report`: what a pipeline's tables say about a day."""

from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from millstream.cli.failure import CommandFailed
from millstream.pipeline.spec import SpecError, load_spec


@click.group("report")
def report() -> None:
    """Reports from the tables of a pipeline, as Markdown, HTML and CSV."""


@report.command("daily")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default="pipeline.toml")
@click.option("--date", "day", metavar="YYYY-MM-DD", help="Which day.  [default: yesterday]")
def daily(file: Path, day: str | None) -> None:
    """Write the report of one day of the pipeline of FILE; an older one is replaced.

    A day is one of the time zone that the file declares.
    """
    try:
        spec = load_spec(file)
    except SpecError as wrong:
        raise CommandFailed(f"{file}: {wrong}") from None
    try:
        from millstream.pipeline.outputs import table_path
        from millstream.pipeline.reports import make_report
    except ImportError as missing:
        raise CommandFailed(
            f"{missing.name} is not installed: pip install 'millstream[pipeline]'"
        ) from None
    chosen = _parse_day(day, ZoneInfo(spec.timezone))
    events = table_path(spec, "events")
    if not (events / "_delta_log").is_dir():
        raise CommandFailed(f"there is no table in {events}; millstream pipeline run makes it")
    click.echo(make_report(spec, chosen, events_path=events) / "report.md")


def _parse_day(text: str | None, zone: ZoneInfo) -> date:
    if text is None:
        return datetime.now(zone).date() - timedelta(days=1)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--date takes YYYY-MM-DD, not {text!r}") from None
