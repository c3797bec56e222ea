"""The streaming queries of a pipeline: one table of them, and how each is started.

Every query reads the input separately, as the columns of events that it needs. So none waits
for another, and each has its own checkpoint.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.pipeline import ended_visits as sessions
from millstream.pipeline import outputs, watching, windows
from millstream.pipeline.event_source import read_events
from millstream.pipeline.outputs import table_path
from millstream.pipeline.parsing import RECORD_COLUMNS
from millstream.pipeline.spec import Spec
from millstream.spark import upserts
from millstream.warehouse import EVENTS, RAW
from millstream.warehouse.files import Batch, TableChanged, WrittenFile

log = logging.getLogger(__name__)

# The query that writes the tables.
STORE: Final = "store"


class LineCounts:
    """Lines since the start of this run, by their problem; `good` has none."""

    def __init__(self) -> None:
        # Written by the thread of a query, read by the status display.
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, counts: dict[str, int]) -> None:
        with self._lock:
            self._counts.update(counts)

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    # How many operators keep state.
    stateful: int
    # It depends on the clock: with `--once` it would never end.
    is_by_clock: bool
    # The columns of an event that it needs; None if it needs the records themselves.
    columns: tuple[str, ...] | None
    build: Callable[[DataFrame, Spec, LineCounts], DataStreamWriter]


def checkpoint(spec: Spec, name: str) -> Path:
    return spec.home / "checkpoints" / name


def start_query(
    spark: SparkSession, spec: Spec, query: Query, counts: LineCounts, *, once: bool
) -> StreamingQuery:
    """`once` processes what is there now and ends; otherwise a batch starts at every trigger."""
    return start_on(read_input(spark, spec, query), spec, query, counts, once=once)


def start_on(
    rows: DataFrame, spec: Spec, query: Query, counts: LineCounts, *, once: bool
) -> StreamingQuery:
    writer = query.build(rows, spec, counts).queryName(f"{spec.name}-{query.name}")
    writer = writer.option("checkpointLocation", str(checkpoint(spec, query.name).absolute()))
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{spec.trigger_ms} milliseconds")
    return writer.start()


def read_input(spark: SparkSession, spec: Spec, query: Query) -> DataFrame:
    """Records, or events, as the query needs them."""
    options = {
        "columns": ",".join(RECORD_COLUMNS),
        "kafka.bootstrap.servers": spec.bootstrap,
        "subscribe": ",".join(spec.topics),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(spec.records_per_batch_max),
        "kafka.isolation.level": "read_committed",
        "commitGroup": f"{spec.name}-{query.name}",
    }
    if query.columns is not None:
        return read_events(spark, spec, options, query.columns)
    return spark.readStream.format("millstream").options(**options).load()


def write_options(spec: Spec, output: outputs.Output) -> dict[str, str]:
    return {"kafka.bootstrap.servers": spec.bootstrap, "topic": output.topic(spec)}


def as_records(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    return rows.select(
        F.to_json(F.struct(*key)).alias("key"), F.to_json(F.struct(*rows.columns)).alias("value")
    )


def _append(
    rows: DataFrame, key: tuple[str, ...], spec: Spec, output: outputs.Output
) -> DataStreamWriter:
    records = as_records(rows, key)
    stream = records.writeStream.outputMode("append").format("millstream")
    return stream.options(**write_options(spec, output))


# -- one function for each query -------------------------------------------------------------


def _store(records: DataFrame, spec: Spec, counts: LineCounts) -> DataStreamWriter:
    """Dead letters and tables: every line once, stateless.

    The task that writes the files parses the lines; they do not come back to Spark.
    """

    def write(batch: DataFrame, number: int) -> None:
        from millstream.pipeline import dead_letters, storing

        folders = (
            {}
            if spec.warehouse == "none"
            else {name: table_path(spec, name) for name in (RAW, EVENTS)}
        )
        reported = storing.write_batch(batch, spec, folders, f"batch-{number}").persist()
        try:
            stored = storing.read_stored(reported)
            if any(kind != storing.GOOD for kind in stored.counts):
                dead_letters.send(reported, number, write_options(spec, outputs.DEAD))
        finally:
            reported.unpersist()
        for name, folder in folders.items():
            _commit(spec, name, folder, Batch(stored.query_id, number), stored.files[name])
        counts.add(dict(stored.counts))

    return records.writeStream.foreachBatch(write)


def _commit(spec: Spec, table: str, folder: Path, batch: Batch, files: list[WrittenFile]) -> None:
    from deltalake.exceptions import DeltaError

    from millstream.warehouse import tables as warehouse

    schema = warehouse.TABLE_SCHEMAS[table]
    is_new = warehouse.commit_batch(folder, schema, spec.warehouse, batch, files)
    if is_new and batch.number % spec.compact_every == spec.compact_every - 1:
        today = datetime.now(ZoneInfo(spec.timezone)).date()
        try:
            warehouse.tidy(folder, keep_days=spec.keep_days, today=today)
        except (DeltaError, TableChanged, OSError) as failed:
            # The rows are stored; files that stay small for a while are no reason to stop.
            log.warning("could not tidy %s: %s", folder, failed)


def _live(events: DataFrame, spec: Spec, counts: LineCounts) -> DataStreamWriter:
    write_windows = upserts(
        {**write_options(spec, outputs.LIVE), "sinkName": "live"}, key=list(windows.KEY)
    )
    write_alerts = upserts(
        {**write_options(spec, outputs.ALERTS), "sinkName": "alerts"},
        key=list(windows.ALERT_KEY),
    )

    def write(batch: DataFrame, number: int) -> None:
        batch = batch.persist()
        try:
            write_windows(batch, number)
            write_alerts(windows.error_bursts(batch, spec), number)
        finally:
            batch.unpersist()

    return windows.live_windows(events, spec).writeStream.outputMode("update").foreachBatch(write)


def _final(events: DataFrame, spec: Spec, counts: LineCounts) -> DataStreamWriter:
    return _append(windows.final_windows(events, spec), windows.KEY, spec, outputs.FINAL)


def _sessions(events: DataFrame, spec: Spec, counts: LineCounts) -> DataStreamWriter:
    return _append(sessions.sessions(events, spec), sessions.KEY, spec, outputs.SESSIONS)


def _watch(events: DataFrame, spec: Spec, counts: LineCounts) -> DataStreamWriter:
    def sink(output: outputs.Output, name: str, key: tuple[str, ...] | None) -> watching.Write:
        options = {**write_options(spec, output), "sinkName": name}
        return upserts(options, key=None if key is None else list(key))

    write = watching.writer(
        spec,
        write_alerts=sink(outputs.ALERTS, "alerts", windows.ALERT_KEY),
        write_visits=sink(outputs.VISITS, "visits", None),
        write_funnels=sink(outputs.FUNNELS, "funnels", watching.FUNNEL_KEY),
    )
    return watching.watch(events, spec).writeStream.outputMode("append").foreachBatch(write)


# In the order in which they are started: what people wait for comes first.
QUERIES: Final = (
    Query("live", 1, False, windows.NEEDED, _live),
    Query(STORE, 0, False, None, _store),
    Query("windows", 2, False, windows.NEEDED, _final),
    Query("watch", 2, True, watching.NEEDED, _watch),
    Query("sessions", 1, False, sessions.NEEDED, _sessions),
)
