"""Computes results again from the tables, for example after a change of settings.

Batch jobs over the warehouse, not over the topic, which may have deleted records. Every
result in a topic keeps its key, so it replaces the old one; those that are not computed
again are removed. Events are parsed again from the raw lines, and their days replaced.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.pipeline import ended_visits as sessions
from millstream.pipeline import outputs, windows
from millstream.pipeline.outputs import table_path
from millstream.pipeline.parsing import parse_events
from millstream.pipeline.queries import BACKFILL, LINES, as_records, checkpoint, write_options
from millstream.pipeline.reporting.periods import Kind, days_of, period_of
from millstream.pipeline.results import VISIT_KEY, WINDOW_KEY
from millstream.pipeline.spec import Spec
from millstream.spark import read_table
from millstream.warehouse import EVENTS, RAW
from millstream.warehouse.files import Table, TableChanged
from millstream.warehouse.tables import event_rows, find_table, write_rows

_DAY_MS: Final = 24 * 3600 * 1000


class CannotRebuild(Exception):
    """The tables lack what the results would be computed from; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Results:
    """A result topic that can be computed completely from the table of events."""

    output: outputs.Output
    key: tuple[str, ...]
    make: Callable[[DataFrame, Spec], DataFrame]
    # The column of the key that says which day a result belongs to.
    begin: str
    # The event time at which real time writes it. None: from its first event on.
    closed_at: Callable[[Spec], Column] | None
    # How far back a result of a day may reach.
    reach_ms: Callable[[Spec], int]


def _session_closed_at(spec: Spec) -> Column:
    return F.col("session_end") + F.expr(f"INTERVAL {spec.session_gap_ms} MILLISECONDS")


TOPICS: Final = {
    "live": Results(
        outputs.LIVE, WINDOW_KEY, windows.live_windows, "window_start", None,
        lambda spec: spec.window_ms,
    ),
    "windows": Results(
        outputs.FINAL, WINDOW_KEY, windows.final_windows, "window_start",
        lambda spec: F.col("window_end"), lambda spec: spec.window_ms,
    ),
    "sessions": Results(
        outputs.SESSIONS, VISIT_KEY, sessions.sessions, "session_start",
        _session_closed_at, lambda spec: spec.session_gap_ms,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rebuilt:
    # The actual first day: the table may not go back further.
    first_day: date
    written: int
    removed: int


def rebuild(spark: SparkSession, spec: Spec, name: str, first_day: date) -> Rebuilt:
    """Compute the results of `first_day` and all later days again."""
    if name == EVENTS:
        return rebuild_events(spark, spec, first_day)
    return rebuild_topic(spark, spec, TOPICS[name], first_day)


# -- topics ----------------------------------------------------------------------------------


def rebuild_topic(spark: SparkSession, spec: Spec, results: Results, first_day: date) -> Rebuilt:
    first = max(first_day, _oldest_whole_day(_table(spec, EVENTS), spec))
    reach = timedelta(days=math.ceil(results.reach_ms(spec) / _DAY_MS))
    events = read_table(spark, table_path(spec, EVENTS))
    read = events.where(F.col("date") >= (first - reach).isoformat())
    is_wanted = _is_wanted(results, spec, first, _watermark_us(events, spec))
    # Cached before the selection: Spark moves a condition on the start of a visit before the
    # views are grouped, and would split visits at midnight.
    rows = results.make(read, spec).persist()
    try:
        made = as_records(rows.where(is_wanted), results.key)
        _write(made, spec, results.output)
        stale = _stale(spark, spec, results, made, is_wanted).persist()
        try:
            _write(stale, spec, results.output)
            return Rebuilt(first, made.count(), stale.count())
        finally:
            stale.unpersist()
    finally:
        rows.unpersist()


def _oldest_whole_day(table: Table, spec: Spec) -> date:
    days = days_of(table.days())
    if not days:
        raise CannotRebuild("the table of events is empty")
    # If days are dropped, a visit of the oldest day may have begun on a dropped one.
    return days[0] + timedelta(days=1 if spec.keep_days else 0)


def _watermark_us(events: DataFrame, spec: Spec) -> int:
    """Up to where real time has written all results of these events; before all time for none."""
    newest = F.coalesce(F.unix_micros(F.max("event_time")), F.lit(0))
    [row] = events.where("problem IS NULL").agg(newest.alias("micros")).collect()
    return int(row.micros) - spec.watermark_delay_ms * 1000


def _is_wanted(results: Results, spec: Spec, first: date, watermark_us: int) -> Column:
    midnight_us = round(period_of(Kind.DAILY, first, spec.timezone).begins_at.timestamp()) * 10**6
    begins = F.unix_micros(results.begin) >= midnight_us
    if results.closed_at is None:
        return begins
    return begins & (F.unix_micros(results.closed_at(spec)) <= watermark_us)


def _stale(
    spark: SparkSession, spec: Spec, results: Results, made: DataFrame, is_wanted: Column
) -> DataFrame:
    """Tombstones for results of those days that were not computed again."""
    nothing = made.limit(0).select("key", F.lit(None).cast("string").alias("value"))
    if results.closed_at is None:
        # The topic may be ahead of the table.
        return nothing
    topic = (
        spark.read.format("millstream")
        .option("kafka.bootstrap.servers", spec.bootstrap)
        .option("subscribe", results.output.topic(spec))
        .option("kafka.isolation.level", "read_committed")
        .option("columns", "key,value,offset")
        .load()
    )
    newest = topic.groupBy(F.col("key").cast("string").alias("key")).agg(
        F.max_by(F.col("value").cast("string"), "offset").alias("value")
    )
    shape = "window_start timestamp, window_end timestamp"
    if results.begin == "session_start":
        shape = "session_start timestamp, session_end timestamp"
    told = newest.select("key", F.from_json("value", shape).alias("told")).select("key", "told.*")
    return (
        told.where(is_wanted)
        .join(made.select("key"), "key", "left_anti")
        .select("key", F.lit(None).cast("string").alias("value"))
    )


def _write(records: DataFrame, spec: Spec, output: outputs.Output) -> None:
    writer = records.write.format("millstream").options(**write_options(spec, output))
    writer.mode("append").save()


# -- the table of events ---------------------------------------------------------------------


def rebuild_events(spark: SparkSession, spec: Spec, first_day: date) -> Rebuilt:
    """Parse raw lines again, by the current file, and replace days of the table of events."""
    # In this order: then the lines end with the last batch of `events`, or we see that they do
    # not. A later batch makes the commit fail.
    events = _table(spec, EVENTS)
    raw = read_table(spark, table_path(spec, RAW))
    query_id = _store_query_id(spec)
    if _table(spec, RAW).last_batch(query_id) != events.last_batch(query_id):
        raise CannotRebuild("a batch is being stored; stop the pipeline, or try again")
    first = max(first_day, _oldest_whole_day(events, spec))
    # A line is stored under the day of its record; its event may be `late` or `ahead` of that.
    reach = timedelta(days=math.ceil(spec.ahead_ms / _DAY_MS))
    lines = raw.where(F.col("date") >= (first - reach).isoformat())
    if not lines.where("value IS NULL AND problem IS NULL").isEmpty():
        raise CannotRebuild("lines of events were not stored, because of parse.mask")
    rows = event_rows(parse_events(_as_read(lines), spec))
    chosen = rows.where(F.col("date") >= first.isoformat())
    _, files = write_rows(chosen, table_path(spec, EVENTS), "rebuilt", spec.warehouse)
    try:
        events.replace_days(first.isoformat(), files)
    except TableChanged as refused:
        raise CannotRebuild(f"a batch was stored in the meantime; try again ({refused})") from None
    return Rebuilt(first, sum(file.rows for file in files), 0)


def _as_read(lines: DataFrame) -> DataFrame:
    """Rows of the table of raw lines in the form of the source."""
    return lines.select(
        F.col("source").cast("binary").alias("key"),
        *("value", "topic", "partition", "offset"),
        F.col("record_time").alias("timestamp"),
    )


def _table(spec: Spec, name: str) -> Table:
    path = table_path(spec, name)
    table = find_table(path)
    if table is None:
        raise CannotRebuild(f"there is no table in {path}; millstream pipeline run creates it")
    return table


def _store_query_id(spec: Spec) -> str:
    """Of the query that fills the tables: in real time, or in a backfill."""
    for name in (LINES, BACKFILL):
        path = checkpoint(spec, name) / "metadata"
        if path.exists():
            found: str = json.loads(path.read_text())["id"]
            return found
    raise CannotRebuild(
        f"{checkpoint(spec, LINES)} is missing: the tables belong to another pipeline"
    )
