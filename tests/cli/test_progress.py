"""The line that shows how far a command is."""

import pytest

from millstream.cli import progress
from millstream.cli.progress import Progress
from tests.support.terminal import HOSTILE, obeyed_by_terminals


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_PLAIN_EVERY_SECONDS", 0.0)


def test_without_a_terminal_it_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(quiet=False)
    shown.show(lambda: "5 lines")
    shown.stop()
    assert capsys.readouterr().err == "5 lines\n"


@pytest.mark.parametrize(("quiet", "plain"), [(True, True), (False, False)])
def test_it_is_silent_when_nobody_wants_it(
    quiet: bool, plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Progress(quiet=quiet, plain=plain).show(lambda: "5 lines")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_name_in_it_is_spelled_out(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_LIVE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: is_terminal)
    Progress(quiet=False).show(lambda: f"5 lines of {HOSTILE}")
    shown = capsys.readouterr().err.removeprefix(progress._AGAIN)
    assert r"evil\x1b[31m" in shown
    assert obeyed_by_terminals(shown) == ""
