"""`millstream report`: what a pipeline's tables say about a day, a week or a month."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import echo, print_json
from millstream.cli.pipeline_file import file_argument, load_file
from millstream.pipeline.reporting.periods import Kind, Period, period_of
from millstream.pipeline.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable


def _date_option(text: str) -> "Callable[[Callable[..., None]], Callable[..., None]]":
    return click.option("--date", "day", metavar="YYYY-MM-DD", help=text)


@click.group("report")
def report() -> None:
    """Reports from the tables of a pipeline, as Markdown, HTML, CSV and Parquet."""


@report.command("daily")
@file_argument
@_date_option("Which day.  [default: yesterday]")
@json_option
def daily(file: Path, day: str | None, as_json: bool) -> None:
    """Write the report of one day of the pipeline of FILE; replaces an older one.

    The day is one of the time zone in the file.
    """
    _report(file, Kind.DAILY, day, as_json)


@report.command("weekly")
@file_argument
@_date_option("A day of the week.  [default: one of last week]")
@json_option
def weekly(file: Path, day: str | None, as_json: bool) -> None:
    """Write the report of a week, Monday to Sunday; replaces an older one."""
    _report(file, Kind.WEEKLY, day, as_json)


@report.command("monthly")
@file_argument
@_date_option("A day of the month.  [default: one of last month]")
@json_option
def monthly(file: Path, day: str | None, as_json: bool) -> None:
    """Write the report of a month; replaces an older one."""
    _report(file, Kind.MONTHLY, day, as_json)


def _report(file: Path, kind: Kind, day: str | None, as_json: bool) -> None:
    spec = load_file(file)
    try:
        from millstream.pipeline.reporting.reports import NoTable, make_report
    except ImportError as missing:
        raise CommandFailed(
            f"{missing.name} is not installed: pip install 'millstream[pipeline]'"
        ) from None
    period = chosen_period(spec, kind, day, now=datetime.now(UTC))
    try:
        made = make_report(spec, period)
    except NoTable as nothing:
        raise CommandFailed(str(nothing)) from None
    markdown, html = str(made / "report.md"), str(made / "report.html")
    if as_json:
        print_json({"markdown": markdown, "html": html})
    else:
        echo(f"{markdown}\n{html}")


def chosen_period(spec: Spec, kind: Kind, text: str | None, *, now: datetime) -> Period:
    """The period of a day; by default the last complete one."""
    if text is None:
        today = now.astimezone(ZoneInfo(spec.timezone)).date()
        begin = period_of(kind, today, spec.timezone).first
        return period_of(kind, begin - timedelta(days=1), spec.timezone)
    try:
        chosen = date.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--date takes YYYY-MM-DD, not {text!r}") from None
    # The periods around one at the end of the calendar cannot be named.
    if not 1970 <= chosen.year < 9999:
        raise click.UsageError(f"--date takes a day since 1970, not {text!r}")
    return period_of(kind, chosen, spec.timezone)
