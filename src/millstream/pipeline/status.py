"""The state of a running pipeline as plain values, stored for `pipeline status`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from millstream.pipeline.json_times import json_time
from millstream.pipeline.progress import Progress

_UTC: Final = ZoneInfo("UTC")
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
    # Lines that came after their window was closed: should stay 0.
    dropped: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    name: str
    written_at: str
    queries: list[QueryStatus] = field(default_factory=list)
    # Lines since the run began: good, unparsable, ahead, late.
    lines: Mapping[str, int] = field(default_factory=dict)


def query_status(
    name: str,
    # Spark's JSON.
    report: Mapping[str, Any] | None,
    progress: Progress,
    *,
    is_running: bool,
    lag: int | None,
    problem: str | None,
) -> QueryStatus:
    batch_ms = int((report or {}).get("durationMs", {}).get("triggerExecution", 0))
    watermark_us = progress.watermark_us
    return QueryStatus(
        name=name,
        is_running=is_running,
        batch=progress.batch,
        rows=progress.lines.total(),
        rows_per_second=progress.batch_lines * 1000 / batch_ms if batch_ms else 0.0,
        lag=lag,
        batch_ms=batch_ms,
        watermark=None if watermark_us is None else json_time(watermark_us, _UTC),
        state_rows=progress.state_rows,
        dropped=progress.dropped,
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
    # Another version may have written more.
    known = {each.name for each in fields(PipelineStatus)}
    return PipelineStatus(
        queries=queries, **{name: each for name, each in value.items() if name in known}
    )
