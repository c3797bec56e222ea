"""Shows a running pipeline: a live table, or plain lines without a terminal."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from millstream.cli.output import escaped
from millstream.cli.pipeline_results import Results
from millstream.pipeline.spec import Spec
from millstream.pipeline.status import PipelineStatus

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

_PLAIN_EVERY_SECONDS: Final = 10.0
_HEADINGS: Final = (
    *("QUERY", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH-MS", "STATE-ROWS", "DROPPED"),
    "WATERMARK",
)
# As much as fits into 80 columns.
_LIVE_HEADINGS: Final = (
    *("QUERY", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH-MS", "DROPPED", "WATERMARK"),
)


class Screen(Protocol):
    def show(self, status: PipelineStatus) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


def make_screen(spec: Spec, results: Results | None) -> Screen:
    """With `results`, the newest window and the last alerts are shown, too."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        return LiveScreen(spec, results)
    return PlainScreen(results)


def status_rows(
    status: PipelineStatus, *, is_unheard: bool
) -> tuple[Sequence[str], list[Sequence[object]]]:
    rows: list[Sequence[object]] = []
    running = "unheard" if is_unheard else "running"
    for query in status.queries:
        state = "failed" if query.problem else (running if query.is_running else "ended")
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

    def __init__(self, results: Results | None) -> None:
        self._last = 0.0
        self._results = results

    def show(self, status: PipelineStatus) -> None:
        if self._results is not None:
            self._results.read()
        if time.monotonic() - self._last < _PLAIN_EVERY_SECONDS:
            return
        self._last = time.monotonic()
        queries = "; ".join(
            f"{query.name} batch {max(query.batch, 0)}, {query.rows:,} rows, "
            f"lag {'-' if query.lag is None else query.lag}"
            for query in status.queries
        )
        self.say(queries)
        if self._results is not None:
            self.say(_window_line(self._results))

    def say(self, text: str) -> None:
        print(escaped(text), file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._results is not None:
            self._results.close()


def _window_line(results: Results) -> str:
    if not results.window_count:
        return "no window yet"
    parts = [f"{row.output} {row.name} {row.count:,}/{row.errors}" for row in results.rows()]
    alerts = f"; last alert {results.alerts[-1]}" if results.alerts else ""
    window = f"window {results.window_start[11:19]} (lines/errors): {', '.join(parts)}"
    return "; ".join([window, *_bounds(results), *_visits(results)]) + alerts


def _visits(results: Results) -> list[str]:
    funnel = results.funnel()
    if not funnel:
        return []
    steps = ", ".join(f"{step} {visits:,}" for step, visits in funnel)
    return [f"{results.open_visit_count:,} open visits; funnel so far: {steps}"]


def _bounds(results: Results) -> list[str]:
    """The error bounds of estimates, from the results themselves."""
    ranks = {row.rank_error for row in results.rows() if row.rank_error}
    deviations = {row.visitors_sd for row in results.rows() if row.visitors_sd}
    found = [f"p95 within {100 * each:g} % of its rank" for each in sorted(ranks)]
    return found + [f"visitors \u00b1{100 * each:g} % (one sd)" for each in sorted(deviations)]


def _shown(text: str) -> "Text":
    """Names come from lines of logs: neither the terminal nor rich's markup may act upon them."""
    from rich.text import Text

    return Text(escaped(text))


class LiveScreen:
    def __init__(self, spec: Spec, results: Results | None) -> None:
        self._spec = spec
        self._results = results
        self._live: Live | None = None

    def show(self, status: PipelineStatus) -> None:
        from rich.console import Console, Group
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.start()
        parts: list[RenderableType] = [self._queries(status)]
        if self._results is not None:
            self._results.read()
            parts += [*self._windows(self._results)]
        self._live.update(Group(*parts), refresh=True)

    def say(self, text: str) -> None:
        """Above the table, where it stays."""
        if self._live is not None:
            self._live.console.print(_shown(text), highlight=False)

    def _queries(self, status: PipelineStatus) -> "Table":
        from rich.table import Table

        lines = ", ".join(f"{count:,} {kind}" for kind, count in sorted(status.lines.items()))
        table = Table(
            title=_shown(f"{self._spec.name}: {lines or 'no lines yet'}"),
            title_justify="left",
            box=None,
        )
        for heading in _LIVE_HEADINGS:
            table.add_column(heading, no_wrap=True)
        for query in status.queries:
            table.add_row(
                _shown(query.name),
                str(max(query.batch, 0)),
                f"{query.rows:,}",
                f"{query.rows_per_second:,.0f}",
                "-" if query.lag is None else f"{query.lag:,}",
                str(query.batch_ms),
                f"{query.dropped:,}",
                "-" if query.watermark is None else query.watermark[11:19],
            )
        return table

    def _windows(self, results: Results) -> "Iterator[RenderableType]":
        from rich.table import Table

        title = f"\nwindow of {results.window_start[11:19] or 'none yet'}"
        table = Table(title=title, title_justify="left", box=None)
        for heading in ("WHAT", "NAME", "LINES", "ERRORS", "P95-MS", "VISITORS"):
            table.add_column(heading)
        for row in results.rows():
            p95 = "" if row.p95_ms is None else f"{row.p95_ms:,.1f}"
            visitors = "" if row.visitors is None else f"~{row.visitors:,}"
            name = _shown(row.name)
            table.add_row(row.output, name, f"{row.count:,}", f"{row.errors:,}", p95, visitors)
        yield table
        yield from map(_shown, (*_bounds(results), *_visits(results)))
        if results.top_pages:
            yield _shown(f"\ntop pages: {', '.join(results.top_pages)}")
        if results.alerts:
            yield _shown("\nalerts:\n" + "\n".join(f"  {each}" for each in results.alerts))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
        if self._results is not None:
            self._results.close()
