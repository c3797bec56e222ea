"""The pipeline: its queries, and what it has found, from its topics and its home."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from millstream.console.allowed import require_describe_cluster
from millstream.console.console import Console
from millstream.console.page import Page, Parameter, Values
from millstream.console.pipeline_results import (
    AlertRow,
    DeadLetter,
    FunnelStep,
    RunStatus,
    TemplateRow,
    WindowChart,
    Windows,
    alerts,
    dead_letters,
    funnel,
    parse_status,
    pipeline_names,
    top_templates,
)
from millstream.console.records import newest_records
from millstream.records.records import Record

_LIVE_RECORDS: Final = 3_000
_RECORDS: Final = 500
_ALERTS_SHOWN: Final = 12
_LETTERS_SHOWN: Final = 8
_TEMPLATES_SHOWN: Final = 10
_REPORTS_SHOWN: Final = 12
_FILES_MAX: Final = 5_000
_CHARTS: Final = (
    ("Lines per second", "input", "per_second", "rate"),
    ("Lines by service", "service", "count", "count"),
    ("Errors by service", "service", "errors", "count"),
    ("Latency of services, p95 in ms", "service", "duration_ms_p95", "count"),
    ("Visitors of the site", "site", "visitors", "count"),
    ("Lines by host", "host", "count", "count"),
)


@dataclass(frozen=True, slots=True)
class TableRow:
    name: str
    files: int
    size_bytes: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class Home:
    """What is in the pipeline's directory."""

    path: str
    status: RunStatus | None
    tables: list[TableRow]
    reports: list[str]


@dataclass(frozen=True, slots=True)
class Pipeline:
    # None if there is none.
    name: str | None
    names: list[str]
    home: Home | None
    newest_window: str | None
    charts: list[WindowChart]
    top_pages: list[tuple[str, int]]
    funnel: list[FunnelStep]
    alerts: list[AlertRow]
    templates_window: str | None
    templates: list[TemplateRow]
    dead_count: int
    dead_reasons: dict[str, int]
    dead_letters: list[DeadLetter]
    now_ms: int


async def pipeline(console: Console, values: Values) -> Pipeline:
    if console.user is not None:
        # Tables and reports are files of this machine: no ACL of a topic covers them.
        await require_describe_cluster(console)
    names = pipeline_names((await console.facts()).topics)
    wanted = values.text("name")
    name = wanted if wanted in names else (names[0] if names else None)
    home = None
    if console.pipeline_home is not None:
        now = datetime.fromtimestamp(console.clock.now_ms() / 1000, UTC)
        home = await asyncio.to_thread(read_home, console.pipeline_home, now)
    windows = Windows(await _newest(console, name, "live", _LIVE_RECORDS))
    reasons, letters = dead_letters(await _newest(console, name, "dead", _RECORDS), _LETTERS_SHOWN)
    dead = (await console.facts()).topics.get(f"{name}.dead")
    return Pipeline(
        name,
        names,
        home,
        windows.newest,
        [windows.chart(*each) for each in _CHARTS],
        windows.top_pages(),
        funnel(await _newest(console, name, "funnels", _RECORDS)),
        alerts(await _newest(console, name, "alerts", _RECORDS), _ALERTS_SHOWN),
        *top_templates(await _newest(console, name, "templates", _RECORDS), _TEMPLATES_SHOWN),
        0 if dead is None else dead.records,
        reasons,
        letters,
        console.clock.now_ms(),
    )


async def _newest(console: Console, name: str | None, suffix: str, limit: int) -> Sequence[Record]:
    topic = (await console.facts()).topics.get(f"{name}.{suffix}")
    return [] if topic is None else await newest_records(console.client, topic, limit=limit)


def read_home(home: Path, now: datetime) -> Home:
    """Runs in a thread. A home that does not exist yet is empty."""
    try:
        status = parse_status((home / "status.json").read_text(), now)
    except (OSError, UnicodeDecodeError):
        status = None
    tables = sorted(each for each in _children(home / "tables") if each.is_dir())
    reports = sorted(
        (each.name for each in _children(home / "reports") if each.is_dir()), reverse=True
    )
    return Home(
        str(home),
        status,
        [_table(each) for each in tables],
        reports[:_REPORTS_SHOWN],
    )


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _table(directory: Path) -> TableRow:
    files = size_bytes = changed_ms = 0
    for path in directory.rglob("*.parquet"):
        try:
            found = path.stat()
        except OSError:
            continue
        files += 1
        size_bytes += found.st_size
        changed_ms = max(changed_ms, found.st_mtime_ns // 1_000_000)
        if files >= _FILES_MAX:
            break
    return TableRow(directory.name, files, size_bytes, changed_ms)


PAGES = (
    Page(
        "/pipeline",
        "pipeline.html",
        pipeline,
        "Queries, live windows, funnel, alerts, tables, dead letters and reports of a pipeline",
        (Parameter("name", "of the pipeline; the first by default"),),
    ),
)
