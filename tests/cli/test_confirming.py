"""Questions before something is deleted, on a terminal and without one."""

import os
import pty
import subprocess
import sys

import pytest

from millstream.cli.confirming import confirm
from millstream.cli.failure import CommandFailed

_PROGRAM = """
import sys
from millstream.cli import main
from millstream.cli.lazy import LazyCommand
import click, millstream.cli.confirming as confirming
@click.command()
def ask():
    confirming.confirm("Sure?", "asking")
    print("done")
confirming.ask = ask
main.root._table = {"ask": LazyCommand("millstream.cli.confirming", "ask", "")}
main.main(["ask"])
"""


def answer(text: bytes) -> tuple[int, bytes]:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as asked:
        os.close(theirs)
        os.write(ours, text)
        output, _ = asked.communicate(timeout=60)
    os.close(ours)
    return asked.returncode, output


def test_yes_goes_on_and_no_is_a_failure() -> None:
    assert answer(b"y\n") == (0, b"done\n")
    assert answer(b"n\n") == (1, b"")
    # The default.
    assert answer(b"\n") == (1, b"")


def test_without_a_terminal_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing, pytest.raises(CommandFailed, match="asking requires -y"):
        monkeypatch.setattr("sys.stdin", nothing)
        confirm("Sure?", "asking")
