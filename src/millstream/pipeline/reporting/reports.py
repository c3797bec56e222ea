"""Reports of days, weeks and months, from the table of events; no Spark.

A report is a directory that is replaced as a whole, so a second run changes nothing but its
age. Periods are those of the declared time zone, which the table is divided by.
"""

import logging
import shutil
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from millstream.pipeline.outputs import table_path
from millstream.pipeline.reporting.periods import Kind, Period, days_of, due_periods, period_of
from millstream.pipeline.reporting.sections import make_sections
from millstream.pipeline.reporting.text import as_html, as_markdown
from millstream.pipeline.spec import Spec
from millstream.spark import lag
from millstream.warehouse import EVENTS
from millstream.warehouse.locations import Location
from millstream.warehouse.tables import find_table

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


class NoTable(Exception):
    """There is nothing to report on."""


def make_report(spec: Spec, period: Period) -> Path:
    """Write the report of a period; returns its directory."""
    path = table_path(spec, EVENTS)
    table = find_table(path)
    if table is None:
        raise NoTable(f"there is no table in {path}; millstream pipeline run makes it")
    sections = make_sections(spec, period, table.dataset())
    target = spec.home / "reports" / period.name
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    title, note = f"{spec.name}: {period.title}", _note(period)
    (new / "report.md").write_text(as_markdown(title, note, sections))
    (new / "report.html").write_text(as_html(title, note, sections))
    for section in sections:
        pa_csv.write_csv(section.table, new / f"{section.name}.csv")
        pq.write_table(section.table, new / f"{section.name}.parquet")
    shutil.rmtree(target, ignore_errors=True)
    new.replace(target)
    return target


def _note(period: Period) -> str:
    hours = (period.ends_at - period.begins_at) / timedelta(hours=1)
    change = 24 * len(period.days) - hours
    shifted = f", with {hours:g} hours: the clocks changed" if change else ""
    return f"A {period.kind.value} report. Days are those of {period.zone}{shifted}."


def scheduled(spec: Spec) -> list[Kind]:
    wanted = {
        Kind.DAILY: spec.daily_report,
        Kind.WEEKLY: spec.weekly_report,
        Kind.MONTHLY: spec.monthly_report,
    }
    has_tables = spec.warehouse != "none"
    return [kind for kind, is_wanted in wanted.items() if is_wanted and has_tables]


def report_on(spec: Spec, store: "StreamingQuery | None") -> bool:
    """Make the next report that is due by what the query `store` has put into the tables, not by
    the clock. False if there was none to make.

    It may be behind: after downtime a day is over long before its last lines are stored. One at a
    time: then there are many, and the caller has a query to look after.
    """
    until = None if store is None else complete_until(store)
    if until is None:
        return False
    try:
        due = due_reports(spec, until)
        if due:
            log.info("made the report %s", make_report(spec, due[0]))
    except (OSError, pa.ArrowException, DeltaError) as failed:
        # It stays due, so the next check tries again; the queries continue.
        log.warning("could not make a report: %s", failed)
        return False
    return bool(due)


def complete_until(query: "StreamingQuery") -> datetime | None:
    """All that was written by then is in finished batches; None where that is not known.

    A batch that took everything there was when it began says so by having no lag.
    """
    progress = query.lastProgress
    behind = lag(query)
    if progress is None or behind is None or not behind.by_partition or behind.total > 0:
        return None
    return datetime.fromisoformat(progress.timestamp)


def due_reports(spec: Spec, complete_until: datetime) -> list[Period]:
    """Periods that closed since the last time, however long ago that was.

    All that was written up to `complete_until` is in the tables.
    """
    days, done = event_days(table_path(spec, EVENTS)), reported(spec.home)
    delay = timedelta(milliseconds=spec.watermark_delay_ms)
    return [
        period
        for kind in scheduled(spec)
        for period in due_periods(
            kind,
            zone=spec.timezone,
            days=days,
            complete_until=complete_until,
            delay=delay,
            done=done,
        )
    ]


def make_reports_since(spec: Spec, first: date) -> list[Path]:
    """Every report that there is and that says something of `first` or a later day, again."""
    made = []
    for name in sorted(reported(spec.home)):
        period = period_named(name, spec.timezone)
        if period is not None and period.end > first:
            made.append(make_report(spec, period))
    return made


def reported(home: Path) -> set[str]:
    return {path.name for path in (home / "reports").glob("*-*") if path.suffix != ".new"}


def period_named(name: str, zone: str) -> Period | None:
    """The period of a report's directory; None where it is not one of ours."""
    kind, _, text = name.partition("-")
    try:
        day = date.fromisoformat({"weekly": f"{text}-1", "monthly": f"{text}-01"}.get(kind, text))
        found = period_of(Kind(kind), day, zone)
    except ValueError:
        return None
    return found if found.name == name else None


def event_days(events_path: Location) -> list[date]:
    table = find_table(events_path)
    return [] if table is None else days_of(table.days())
