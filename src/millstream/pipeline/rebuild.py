"""Results made again from the table of events: after a change of settings, or of mind.

A batch job over the warehouse, not over the topic, which may have forgotten. Every result has
the key that it had, so in a compacted topic it takes the place of the old one.
"""

from collections.abc import Callable
from datetime import date
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.pipeline import outputs, sessions, windows
from millstream.pipeline.queries import as_records, write_options
from millstream.pipeline.spec import Spec
from millstream.spark import read_table

_Make = Callable[[DataFrame, Spec], DataFrame]

REBUILT: Final[dict[str, tuple[_Make, tuple[str, ...], outputs.Output]]] = {
    "windows": (windows.final_windows, windows.KEY, outputs.FINAL),
    "sessions": (sessions.sessions, sessions.KEY, outputs.SESSIONS),
}


def rebuild(spark: SparkSession, spec: Spec, name: str, first_day: date) -> int:
    """Write the results of `first_day` and all days after it again; returns how many.

    A visit that began on the day before is given from midnight on, under another key.
    """
    make, key, output = REBUILT[name]
    events = read_table(spark, outputs.table_path(spec, outputs.EVENTS))
    rows = make(events.where(F.col("date") >= first_day.isoformat()), spec).persist()
    try:
        records = as_records(rows, key).write.format("millstream")
        records.options(**write_options(spec, output)).mode("append").save()
        return rows.count()
    finally:
        rows.unpersist()
