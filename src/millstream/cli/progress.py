"""How far a command is: one line on stderr that is updated, for people who wait."""

import os
import sys
import time
from collections.abc import Callable
from typing import Final

from millstream.cli.output import escaped

_AFTER_SECONDS: Final = 0.5
_LIVE_EVERY_SECONDS: Final = 0.1
_PLAIN_EVERY_SECONDS: Final = 10.0
# Back to the start of the line, and clear it.
_AGAIN: Final = "\r\x1b[K"


class Progress:
    """On a terminal the line is rewritten in place; otherwise a plain line appears now and then,
    or none with `plain=False`."""

    def __init__(self, *, quiet: bool, plain: bool = True) -> None:
        self._is_wanted = not quiet
        self._is_plain_wanted = plain
        is_dumb = os.environ.get("TERM") == "dumb"
        self._is_terminal = sys.stderr.isatty() and not is_dumb and not os.environ.get("CI")
        self._started = time.monotonic()
        self._shown_at = self._started
        self._is_shown = False

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started

    def show(self, text: Callable[[], str]) -> None:
        if not self._is_wanted or self.elapsed_seconds < _AFTER_SECONDS:
            return
        now = time.monotonic()
        waited_seconds = now - self._shown_at
        if self._is_terminal and waited_seconds >= _LIVE_EVERY_SECONDS:
            self._shown_at, self._is_shown = now, True
            print(f"{_AGAIN}{escaped(text())}", end="", file=sys.stderr, flush=True)
        elif self._is_plain_wanted and waited_seconds >= _PLAIN_EVERY_SECONDS:
            self._shown_at = now
            print(escaped(text()), file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Clear the line: what follows is the result."""
        if self._is_shown:
            self._is_shown = False
            print(_AGAIN, end="", file=sys.stderr, flush=True)
