"""Visits from the table of events, computed by Spark: for `rebuild` and `backfill`.

In real time `visit_log` follows them. The funnel's steps count if they were reached in order, with
or without other pages in between.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.pipeline.globs import glob_pattern
from millstream.pipeline.spec import Spec
from millstream.pipeline.windows import JUDGED, countable, is_page_view

NEEDED: Final = (*JUDGED, "partition", "offset")


def sessions(events: DataFrame, spec: Spec) -> DataFrame:
    # Spark would move a plain condition before the watermark, which only page views would move
    # then: on a quiet site visits would never end. One about the event time itself stays behind.
    is_never = F.col("event_time") < F.lit("1000-01-01").cast("timestamp")
    is_view = is_page_view() & F.col("visitor").isNotNull()
    views = countable(events, spec).where(is_view | is_never)
    step = funnel_step(spec.funnel)
    # The record's offset orders views of the same millisecond, the same way every time.
    seen = F.when(step > 0, F.struct("event_time", "partition", "offset", step.alias("step")))
    # A silence of the whole gap ends a visit; Spark's gap joins two that are exactly as long.
    longest_us = spec.session_gap_ms * 1000 - 1
    session = F.session_window("event_time", f"{longest_us} microseconds")
    grouped = views.groupBy(session, "visitor").agg(
        F.count(F.lit(1)).alias("views"),
        F.sum(F.col("is_error").cast("long")).alias("errors"),
        F.max("event_time").alias("last_view"),
        F.collect_list(seen).alias("seen"),
    )
    return grouped.select(
        "visitor",
        F.col("session_window.start").alias("session_start"),
        F.col("last_view").alias("session_end"),
        F.lit(True).alias("final"),
        "views",
        "errors",
        _depth().alias("funnel_step"),
        F.lit(len(spec.funnel)).alias("funnel_steps"),
    )


def funnel_step(funnel: tuple[str, ...]) -> Column:
    """1 for the first step, and so on; 0 for a page that is not a step."""
    found: Column | None = None
    for number, glob in enumerate(funnel, start=1):
        is_step = F.col("path").rlike(glob_pattern(glob))
        found = F.when(is_step, number) if found is None else found.when(is_step, number)
    return F.lit(0) if found is None else found.otherwise(0)


def _depth() -> Column:
    return F.aggregate(
        F.sort_array("seen"),
        F.lit(0),
        lambda reached, view: F.when(view["step"] == reached + 1, reached + 1).otherwise(reached),
    )
