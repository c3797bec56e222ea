"""Questions before something is deleted, on a terminal and without one."""

import os
import pty
import subprocess
import sys

import pytest

from millstream.cli.confirming import confirm
from millstream.cli.failure import CommandFailed

_PROGRAM = r"""
import sys
from millstream.cli import main
from millstream.cli.lazy import LazyCommand
import click, millstream.cli.confirming as confirming
@click.command()
def ask():
    confirming.confirm("Sure, \x1b[31mevil?", "asking")
    print("done")
confirming.ask = ask
main.root._table = {"ask": LazyCommand("millstream.cli.confirming", "ask", "")}
main.main(["ask"])
"""


def answer(text: bytes) -> tuple[int, bytes, bytes]:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as asked:
        os.close(theirs)
        os.write(ours, text)
        output, question = asked.communicate(timeout=60)
    os.close(ours)
    return asked.returncode, output, question


def test_yes_goes_on_and_no_is_a_failure() -> None:
    assert answer(b"y\n")[:2] == (0, b"done\n")
    assert answer(b"n\n")[:2] == (1, b"")
    # The default.
    assert answer(b"\n")[:2] == (1, b"")


def test_a_name_in_a_question_is_spelled_out() -> None:
    *_, question = answer(b"y\n")
    assert rb"Sure, \x1b[31mevil? [y/N]" in question
    assert b"\x1b" not in question


def test_without_a_terminal_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing, pytest.raises(CommandFailed, match="asking requires -y"):
        monkeypatch.setattr("sys.stdin", nothing)
        confirm("Sure?", "asking")
