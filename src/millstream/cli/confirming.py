"""Asking a person before something is gone for good."""

import sys
from collections.abc import Sequence

import click

from millstream.cli.failure import CommandFailed


def ask_before_deleting(kind: str, names: Sequence[str], contents: str) -> None:
    """Returns when the answer is yes; ends the command otherwise."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"deleting {kind} needs -y where nobody can be asked")
    click.confirm(f"Delete {', '.join(names)} with {contents}?", abort=True, err=True)
