"""Processes lines of any age, once: tables first, then closed windows and visits from them.

A stream judges an event by the time of its record, and closes windows by a watermark; a file
of last year would be late in both. Here no line is judged by its age, and as all lines are
there, every window is closed. When run again after more lines arrived, it adds them to the
table and rewrites all results under their keys. If a new line moves the start of a visit, the
visit gets another key and also stays under the old one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millstream.pipeline import ended_visits as sessions
from millstream.pipeline import outputs, windows
from millstream.pipeline.differences import keep
from millstream.pipeline.outputs import table_path
from millstream.pipeline.progress import Watched
from millstream.pipeline.queries import (
    BACKFILL,
    LINES,
    as_records,
    checkpoint,
    start_lines,
    write_options,
)
from millstream.pipeline.restarts import Restarts
from millstream.pipeline.results import VISIT_KEY, WINDOW_KEY
from millstream.pipeline.run import PipelineFailed, create_topics, reason
from millstream.pipeline.spec import Spec, SpecError
from millstream.spark import read_table
from millstream.warehouse import EVENTS
from millstream.warehouse.tables import find_table

_ANY_AGE_MS: Final = 1000 * 365 * 24 * 3600 * 1000

_Made = tuple[Callable[[DataFrame, Spec], DataFrame], tuple[str, ...], outputs.Output]
_RESULTS: Final[tuple[_Made, ...]] = (
    (windows.final_windows, WINDOW_KEY, outputs.FINAL),
    (sessions.sessions, VISIT_KEY, outputs.SESSIONS),
)


@dataclass(frozen=True, slots=True)
class Backfilled:
    # New lines, by their problem; `good` has none.
    lines: dict[str, int]
    # How many results there are now, by topic.
    results: dict[str, int]


def check_backfill(spec: Spec) -> None:
    if spec.warehouse == "none":
        raise SpecError("warehouse.format is 'none', but a backfill goes through the tables")
    if spec.state_location:
        raise SpecError(
            "state: a backfill has no open results, and its progress is in its home. Give it a "
            "separate file, with another name and home"
        )
    if checkpoint(spec, LINES).exists():
        raise SpecError(
            f"the pipeline in {spec.home} runs in real time, which has judged lines by their "
            "age; give the backfill a separate file, with another name and home"
        )


def backfill(spark: SparkSession, spec: Spec, say: Callable[[str], None]) -> Backfilled:
    """`say` is called with what a person should know meanwhile."""
    check_backfill(spec)
    keep(spec)
    create_topics(spec)
    watched = Watched()
    unjudged = replace(spec, ahead_ms=_ANY_AGE_MS, late_ms=_ANY_AGE_MS)
    _take_lines(spark, unjudged, watched, say)
    found = dict(watched.get().lines)
    if find_table(table_path(spec, EVENTS)) is None:
        return Backfilled(found, {output.topic(spec): 0 for _, _, output in _RESULTS})
    events = read_table(spark, table_path(spec, EVENTS))
    written = {
        output.topic(spec): _write(make(events, spec), key, spec, output)
        for make, key, output in _RESULTS
    }
    return Backfilled(found, written)


def _take_lines(
    spark: SparkSession, spec: Spec, watched: Watched, say: Callable[[str], None]
) -> None:
    restarts = Restarts()
    while True:
        query = start_lines(spark, spec, BACKFILL, watched, once=True)
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as failed:
            restart = restarts.after(str(failed), batch=watched.get().batch)
            if restart is None:
                raise PipelineFailed(f"query {BACKFILL}: {reason(str(failed))}") from None
            say(restart.text)
            time.sleep(restart.pause_seconds)


def _write(rows: DataFrame, key: tuple[str, ...], spec: Spec, output: outputs.Output) -> int:
    records = as_records(rows, key).persist()
    try:
        writer = records.write.format("millstream").options(**write_options(spec, output))
        writer.mode("append").save()
        return records.count()
    finally:
        records.unpersist()
