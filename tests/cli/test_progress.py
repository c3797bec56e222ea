"""The line that shows how far a command is."""

import pytest

from millstream.cli import progress
from millstream.cli.progress import Progress


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
