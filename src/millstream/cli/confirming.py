"""Asks a person for confirmation before something is deleted."""

import sys
from collections.abc import Sequence

import click

from millstream.cli.failure import CommandFailed


def ask_before_deleting(kind: str, names: Sequence[str], contents: str) -> None:
    """Returns if the answer is yes; ends the command otherwise."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"deleting {kind} requires -y when stdin is not a terminal")
    click.confirm(f"Delete {', '.join(names)} with {contents}?", abort=True, err=True)
