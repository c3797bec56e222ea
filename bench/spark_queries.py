"""The results of the pipeline by Spark's own operators, line by line: what it is measured against.

Four queries, each of which reads and parses the input: live windows in update mode, with sketches
of visitors and pages; closed windows, in two aggregations; ended visits; tables and dead letters.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.pipeline import outputs, windows
from millstream.pipeline.ended_visits import NEEDED as VISITS_NEEDED
from millstream.pipeline.ended_visits import sessions
from millstream.pipeline.parsing import parse_events
from millstream.pipeline.queries import as_records, checkpoint, write_options
from millstream.pipeline.results import VISIT_KEY, WINDOW_KEY
from millstream.pipeline.spec import Spec
from millstream.pipeline.window_totals import ALL, HOST, INPUT, SERVICE, SITE
from millstream.spark import upserts

_VISITORS_LOG_SIZE: Final = 12
_PAGES_TRACKED: Final = 1024


def start_results(records: DataFrame, spec: Spec) -> list[StreamingQuery]:
    """The three queries with state; `records` are those of the input."""
    events = parse_events(records, spec, windows.NEEDED)
    views = parse_events(records, spec, VISITS_NEEDED)
    write = upserts({**write_options(spec, outputs.LIVE), "sinkName": "live"}, key=WINDOW_KEY)
    live = live_windows(events, spec).writeStream.outputMode("update").foreachBatch(write)
    final = _appended(windows.final_windows(events, spec), WINDOW_KEY, spec, outputs.FINAL)
    visits = _appended(sessions(views, spec), VISIT_KEY, spec, outputs.SESSIONS)
    chosen = {"live": live, "windows": final, "sessions": visits}
    return [_start(writer, spec, name) for name, writer in chosen.items()]


def _appended(
    rows: DataFrame, key: tuple[str, ...], spec: Spec, output: outputs.Output
) -> DataStreamWriter:
    stream = as_records(rows, key).writeStream.outputMode("append").format("millstream")
    return stream.options(**write_options(spec, output))


def _start(writer: DataStreamWriter, spec: Spec, name: str) -> StreamingQuery:
    return (
        writer.queryName(f"{spec.name}-{name}")
        .option("checkpointLocation", str(checkpoint(spec, name).absolute()))
        .trigger(processingTime=f"{spec.trigger_ms} milliseconds")
        .start()
    )


def live_windows(events: DataFrame, spec: Spec) -> DataFrame:
    """Visitors and top pages are estimates: Spark chains no aggregations in update mode."""
    groups = F.array(
        windows._group(INPUT, F.lit(ALL), F.lit(True)),
        windows._group(HOST, F.col("host"), F.col("host").isNotNull()),
        windows._group(SERVICE, F.col("service"), F.col("service").isNotNull()),
        windows._group(SITE, F.lit(ALL), windows.is_page_view()),
    )
    rows = windows._exploded(windows.countable(events, spec), groups, spec)
    is_site = F.col("output") == SITE
    top = F.expr(
        f"approx_top_k(path, {spec.top}, {_PAGES_TRACKED}) FILTER (WHERE output = '{SITE}')"
    )
    counted = rows.groupBy(windows._window(spec), "output", "name").agg(
        *windows._counts(),
        windows._percentiles().alias("percentiles"),
        F.hll_sketch_estimate(
            F.hll_sketch_agg(F.when(is_site, F.col("visitor")), F.lit(_VISITORS_LOG_SIZE))
        ).alias("visitors"),
        *windows._gauges(spec),
        top.alias("top"),
    )
    pages = F.transform(
        "top", lambda each: F.struct(each["item"].alias("path"), each["count"].alias("count"))
    )
    return counted.select(*windows._result(spec, is_final=False, top=pages))
