"""How a running pipeline is shown: a table that changes, or plain lines where none can."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from millstream.pipeline.spec import Spec
from millstream.pipeline.status import PipelineStatus

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_PLAIN_EVERY_SECONDS: Final = 10.0
_HEADINGS: Final = (
    *("QUERY", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH-MS", "STATE-ROWS", "DROPPED"),
    "WATERMARK",
)


class Screen(Protocol):
    def show(self, status: PipelineStatus) -> None: ...
    def close(self) -> None: ...


def make_screen(spec: Spec) -> Screen:
    if sys.stderr.isatty() and not os.environ.get("CI"):
        return LiveScreen(spec)
    return PlainScreen()


def status_rows(status: PipelineStatus) -> tuple[Sequence[str], list[Sequence[object]]]:
    rows: list[Sequence[object]] = []
    for query in status.queries:
        state = "failed" if query.problem else ("running" if query.is_running else "ended")
        rows.append(
            (
                query.name,
                state,
                max(query.batch, 0),
                f"{query.rows:,}",
                f"{query.rows_per_second:,.0f}",
                "-" if query.lag is None else f"{query.lag:,}",
                query.batch_ms,
                f"{query.state_rows:,}",
                f"{query.dropped:,}",
                query.watermark or "-",
            )
        )
    return _HEADINGS, rows


class PlainScreen:
    """A line now and then, for logs and pipes."""

    def __init__(self) -> None:
        self._last = 0.0

    def show(self, status: PipelineStatus) -> None:
        if time.monotonic() - self._last < _PLAIN_EVERY_SECONDS:
            return
        self._last = time.monotonic()
        queries = "; ".join(
            f"{query.name} batch {max(query.batch, 0)}, {query.rows:,} rows, "
            f"lag {'-' if query.lag is None else query.lag}"
            for query in status.queries
        )
        print(queries, file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class LiveScreen:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._live: Live | None = None

    def show(self, status: PipelineStatus) -> None:
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.start()
        self._live.update(self._table(status), refresh=True)

    def _table(self, status: PipelineStatus) -> "Table":
        from rich.table import Table

        lines = ", ".join(f"{count:,} {kind}" for kind, count in sorted(status.lines.items()))
        table = Table(
            title=f"{self._spec.name}: {lines or 'no lines yet'}", title_justify="left", box=None
        )
        headings, rows = status_rows(status)
        for heading in headings:
            table.add_column(heading)
        for row in rows:
            table.add_row(*map(str, row))
        return table

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
