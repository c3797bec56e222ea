"""The state of a running pipeline as plain values, stored for `pipeline status`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

STATUS_NAME: Final = "status.json"
# A run writes its status every second, but not while it writes a report.
_SILENCE_MAX: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class QueryStatus:
    name: str
    is_running: bool
    batch: int
    # Since the run began.
    rows: int
    rows_per_second: float
    lag: int | None
    batch_ms: int
    watermark: str | None
    state_rows: int
    # By Spark itself, because they came after the watermark: should stay 0.
    dropped: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    name: str
    written_at: str
    stateful_operators: int
    queries: list[QueryStatus] = field(default_factory=list)
    # Lines since the run began: good, unparsable, ahead, late.
    lines: Mapping[str, int] = field(default_factory=dict)
    # How many of the queries keep state.
    stateful_queries: int = 0


class Totals:
    """Sums over the progress reports of one query, each counted once."""

    def __init__(self) -> None:
        self._last_batch = -1
        self.rows = 0
        self.dropped = 0

    # A report is Spark's JSON.
    def add(self, report: Mapping[str, Any]) -> None:
        if report["batchId"] <= self._last_batch:
            return
        self._last_batch = report["batchId"]
        self.rows += report.get("numInputRows") or 0
        self.dropped += sum(
            operator.get("numRowsDroppedByWatermark", 0)
            for operator in report.get("stateOperators", [])
        )


def query_status(
    name: str,
    report: Mapping[str, Any] | None,
    totals: Totals,
    *,
    is_running: bool,
    lag: int | None,
    problem: str | None,
) -> QueryStatus:
    report = report or {}
    return QueryStatus(
        name=name,
        is_running=is_running,
        batch=report.get("batchId", -1),
        rows=totals.rows,
        rows_per_second=float(report.get("processedRowsPerSecond") or 0.0),
        lag=lag,
        batch_ms=int(report.get("durationMs", {}).get("triggerExecution", 0)),
        watermark=report.get("eventTime", {}).get("watermark"),
        state_rows=sum(op.get("numRowsTotal", 0) for op in report.get("stateOperators", [])),
        dropped=totals.dropped,
        problem=problem,
    )


def is_unheard(status: PipelineStatus, now: datetime) -> bool:
    """Whether a run that did not report its end has been silent for long: probably killed."""
    is_running = any(query.is_running for query in status.queries)
    return is_running and now - datetime.fromisoformat(status.written_at) > _SILENCE_MAX


def write_status(home: Path, status: PipelineStatus) -> None:
    new = home / (STATUS_NAME + ".new")
    new.write_text(json.dumps(asdict(status), indent=1) + "\n")
    new.replace(home / STATUS_NAME)


def read_status(home: Path) -> PipelineStatus | None:
    try:
        value = json.loads((home / STATUS_NAME).read_text())
    except FileNotFoundError:
        return None
    queries = [QueryStatus(**each) for each in value.pop("queries")]
    return PipelineStatus(queries=queries, **value)
