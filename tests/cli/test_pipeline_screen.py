"""Names from lines of logs, on the screen of a pipeline."""

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.cli.pipeline_results import WindowRow
from millstream.cli.pipeline_screen import LiveScreen, PlainScreen
from millstream.pipeline.status import PipelineStatus, QueryStatus
from tests.support.terminal import HOSTILE, obeyed_by_terminals

# `[red]` is markup of the library that draws the tables.
NAME = f"[red]{HOSTILE}"


class HostileResults:
    """What a pipeline shows of lines that somebody else wrote."""

    window_count = 1
    window_start = "2026-01-31T10:00:00"
    top_pages = (NAME,)
    alerts = (NAME,)
    open_visit_count = 1

    def read(self) -> None:
        pass

    def close(self) -> None:
        pass

    def rows(self) -> list[WindowRow]:
        return [WindowRow("pages", NAME, 3, 1, None, None, None, None)]

    def funnel(self) -> list[tuple[str, int]]:
        return [(NAME, 2)]


def status() -> PipelineStatus:
    query = QueryStatus(NAME, True, 1, 10, 1.0, 0, 5, None, 0, 0)
    return PipelineStatus("pipeline", "now", [query], {NAME: 10})


def show_on(screen: Any) -> None:
    screen.show(status())
    screen.say(NAME)
    screen.close()


def test_without_a_terminal_names_are_spelled_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = PlainScreen(HostileResults())  # type: ignore[arg-type]
    screen._last = float("-inf")
    show_on(screen)
    shown = capsys.readouterr().err
    # Query, window, funnel, alert, and the line at the end.
    assert shown.count(r"[red]evil\x1b[31m") == 5
    assert obeyed_by_terminals(shown) == ""


def test_on_the_live_screen_names_are_spelled_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    spec = SimpleNamespace(name=NAME)
    show_on(LiveScreen(spec, HostileResults()))  # type: ignore[arg-type]
    shown = capsys.readouterr().err
    # Name and lines of the pipeline, query, window, funnel, page, alert, and what is said above.
    assert shown.count(r"[red]evil\x1b[31m") >= 8
    assert obeyed_by_terminals(shown) == ""
