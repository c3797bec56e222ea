"""Tables that are printed again and again until Ctrl-C: `--watch`."""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import click

from millstream.cli.output import check_output_open, echo

F = TypeVar("F", bound=Callable[..., object])

_CLEAR_SCREEN = "\x1b[H\x1b[2J"
_LOOK_SECONDS = 0.25


def watch_option(command: F) -> F:
    """Add `--watch [SECONDS]` to a command."""
    return click.option(
        "-w",
        "--watch",
        "watch_seconds",
        type=click.FloatRange(0, min_open=True),
        is_flag=False,
        flag_value=2.0,
        metavar="[SECONDS]",
        help="Print again every 2 seconds, or every so many, until Ctrl-C.",
    )(command)


def print_again(show: Callable[[], None], seconds: float | None) -> None:
    """Once without `seconds`. On a terminal, each table replaces the one before it."""
    while True:
        if seconds is not None and sys.stdout.isatty():
            click.echo(_CLEAR_SCREEN, nl=False)
        show()
        if seconds is None:
            return
        sys.stdout.flush()
        _wait(seconds)
        if not sys.stdout.isatty():
            echo()


def _wait(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        check_output_open()
        time.sleep(min(left, _LOOK_SECONDS))
