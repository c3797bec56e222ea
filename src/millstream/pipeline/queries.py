"""The streaming queries of a pipeline: one table of them, and how each is started.

Every query reads the input by itself and parses what it needs of it, so none waits for
another, and each has a checkpoint of its own.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.pipeline import outputs, sessions, watching, windows
from millstream.pipeline.outputs import table_path
from millstream.pipeline.parsing import parse_events
from millstream.pipeline.spec import Spec
from millstream.pipeline.table_files import Batch, TableChanged, WrittenFile
from millstream.spark import upserts

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# The query that writes the tables.
STORE: Final = "store"
_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"


class LineCounts:
    """Lines since the start of this run, by their problem; `good` has none."""

    def __init__(self) -> None:
        # Written by the thread of a query, read by whoever shows it.
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
    # It goes on while the clock does: in a run that takes what is there it would never end.
    is_by_clock: bool
    build: Callable[[DataFrame, Spec, LineCounts], DataStreamWriter]


def checkpoint(spec: Spec, name: str) -> Path:
    return spec.home / "checkpoints" / name


def start_query(
    spark: SparkSession, spec: Spec, query: Query, counts: LineCounts, *, once: bool
) -> StreamingQuery:
    """`once` takes what is there now and ends; otherwise a batch begins at every trigger."""
    events = parse_events(read_lines(spark, spec, query.name), spec)
    writer = query.build(events, spec, counts).queryName(f"{spec.name}-{query.name}")
    writer = writer.option("checkpointLocation", str(checkpoint(spec, query.name).absolute()))
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{spec.trigger_ms} milliseconds")
    return writer.start()


def read_lines(spark: SparkSession, spec: Spec, query_name: str) -> DataFrame:
    return (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", spec.bootstrap)
        .option("subscribe", ",".join(spec.topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(spec.records_per_batch_max))
        .option("kafka.isolation.level", "read_committed")
        .option("columns", _COLUMNS)
        .option("commitGroup", f"{spec.name}-{query_name}")
        .load()
    )


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


def _store(events: DataFrame, spec: Spec, counts: LineCounts) -> DataStreamWriter:
    """Dead letters and tables: every line once, stateless."""

    def write(batch: DataFrame, number: int) -> None:
        from millstream.pipeline import storing

        folders = (
            {}
            if spec.warehouse == "none"
            else {name: table_path(spec, name) for name in (outputs.RAW, outputs.EVENTS)}
        )
        told = storing.write_batch(batch, folders, f"batch-{number}", spec.warehouse).persist()
        try:
            stored = storing.read_stored(told)
            if any(kind != storing.GOOD for kind in stored.counts):
                (
                    storing.dead_records(told)
                    .write.format("millstream")
                    .options(**write_options(spec, outputs.DEAD))
                    .option("includeHeaders", "true")
                    .option("semantics", "exactly-once")
                    .option("batchId", number)
                    .mode("append")
                    .save()
                )
        finally:
            told.unpersist()
        schemas = storing.table_schemas(batch)
        for name, folder in folders.items():
            _commit(spec, folder, schemas[name], Batch(stored.query_id, number), stored.files[name])
        counts.add(dict(stored.counts))

    return events.writeStream.foreachBatch(write)


def _commit(
    spec: Spec, folder: Path, schema: "pa.Schema", batch: Batch, files: list[WrittenFile]
) -> None:
    from deltalake.exceptions import DeltaError

    from millstream.pipeline import warehouse

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
    Query("live", 1, False, _live),
    Query(STORE, 0, False, _store),
    Query("windows", 2, False, _final),
    Query("watch", 2, True, _watch),
    Query("sessions", 1, False, _sessions),
)
