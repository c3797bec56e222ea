"""Asks a person for confirmation before something is deleted or changed."""

import sys
from collections.abc import Sequence

import click

from millstream.cli.failure import CommandFailed
from millstream.cli.output import escaped


def ask_before_deleting(kind: str, names: Sequence[str], contents: str) -> None:
    """Returns if the answer is yes; ends the command otherwise."""
    confirm(f"Delete {', '.join(names)} with {contents}?", f"deleting {kind}")


def confirm(question: str, what: str) -> None:
    """Returns if the answer is yes; ends the command otherwise. `what` names the action."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"{what} requires -y when stdin is not a terminal")
    if not click.confirm(escaped(question), err=True):
        raise CommandFailed("nothing was changed")
