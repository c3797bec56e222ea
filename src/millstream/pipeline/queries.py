"""The streaming query of a pipeline, and how it is started.

One query reads the input, once. Its tasks parse the lines and add them up (`line_pass`); the driver
merges what they report and writes all results (`batch_results`). A backfill runs the same query
without results: it computes them from the tables.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from millstream.pipeline import outputs
from millstream.pipeline.anomalies import AnomalyRules
from millstream.pipeline.batch_results import BatchResults
from millstream.pipeline.kept_state import KeptState
from millstream.pipeline.line_pass import PassRules
from millstream.pipeline.line_source import read_lines
from millstream.pipeline.open_results import OpenResults
from millstream.pipeline.outputs import table_path
from millstream.pipeline.parsing import RECORD_COLUMNS, line_rules
from millstream.pipeline.partials import Rules
from millstream.pipeline.progress import Watched
from millstream.pipeline.spec import Spec
from millstream.pipeline.state_files import files_of
from millstream.warehouse import EVENTS, RAW
from millstream.warehouse.locations import Location, as_text

# Names of queries, and of their checkpoints.
LINES: Final = "lines"
BACKFILL: Final = "backfill"
# Of one task. A batch that is larger is divided among more tasks than there are partitions.
_TASK_RECORDS_MAX: Final = 250_000
_STATE: Final = "results"


def checkpoint(spec: Spec, name: str) -> Path:
    return spec.home / "checkpoints" / name


def start_lines(
    spark: SparkSession, spec: Spec, name: str, watched: Watched, *, once: bool
) -> StreamingQuery:
    """`once` processes what is there now and ends; otherwise a batch starts at every trigger."""
    reports = read_lines(spark, read_options(spec, name), pass_rules(spec, name).to_json())
    return start_on(reports, spec, name, watched, once=once)


def start_on(
    reports: DataFrame, spec: Spec, name: str, watched: Watched, *, once: bool
) -> StreamingQuery:
    """On what tasks report, whatever they read."""
    folder = checkpoint(spec, name).absolute()
    state = _kept_state(spec, folder) if name == LINES else None
    results = BatchResults(spec, watched, state=state, folders=_folders(spec))
    writer = reports.writeStream.foreachBatch(results.write).queryName(f"{spec.name}-{name}")
    writer = writer.option("checkpointLocation", str(folder))
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{spec.trigger_ms} milliseconds")
    return writer.start()


def _kept_state(spec: Spec, folder: Path) -> KeptState:
    make = partial(open_results, spec)
    if not spec.state_location:
        return KeptState(files_of(folder / _STATE), make)
    state = KeptState(files_of(spec.state_location), make, folder)
    state.begin()
    return state


def read_options(spec: Spec, name: str) -> dict[str, str]:
    return {
        "columns": ",".join(RECORD_COLUMNS),
        "kafka.bootstrap.servers": spec.bootstrap,
        "subscribe": ",".join(spec.topics),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(spec.records_per_batch_max),
        "maxRecordsPerPartition": str(_TASK_RECORDS_MAX),
        "kafka.isolation.level": "read_committed",
        "commitGroup": f"{spec.name}-{name}",
    }


def pass_rules(spec: Spec, name: str) -> PassRules:
    return PassRules(
        lines=line_rules(spec).to_json(),
        results=result_rules(spec) if name == LINES else None,
        folders={table: as_text(folder) for table, folder in _folders(spec).items()},
        table_format=spec.warehouse,
        timezone=spec.timezone,
        bootstrap=spec.bootstrap,
        dead_topic=outputs.DEAD.topic(spec),
    )


def result_rules(spec: Spec) -> Rules:
    return Rules(
        window_us=spec.window_ms * 1000,
        gap_us=spec.session_gap_ms * 1000,
        funnel=spec.funnel,
        gauges=len(spec.gauges),
        counters=len(spec.counters),
        has_templates=spec.watch_templates,
    )


def open_results(spec: Spec) -> OpenResults:
    return OpenResults(
        result_rules(spec),
        delay_us=spec.watermark_delay_ms * 1000,
        silent_after_ms=spec.silent_after_ms,
        anomaly_rules=_anomaly_rules(spec) if spec.watch_anomalies else None,
        top_templates=spec.top_templates,
    )


def _anomaly_rules(spec: Spec) -> AnomalyRules:
    return AnomalyRules(
        sensitivity=spec.anomaly_sensitivity,
        window_us=spec.window_ms * 1000,
        timezone=spec.timezone,
        gauges=spec.gauges,
        counters=spec.counters,
    )


def _folders(spec: Spec) -> Mapping[str, Location]:
    if spec.warehouse == "none":
        return {}
    return {table: table_path(spec, table) for table in (RAW, EVENTS)}


def write_options(spec: Spec, output: outputs.Output) -> dict[str, str]:
    return {"kafka.bootstrap.servers": spec.bootstrap, "topic": output.topic(spec)}


def as_records(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    return rows.select(
        F.to_json(F.struct(*key)).alias("key"), F.to_json(F.struct(*rows.columns)).alias("value")
    )
