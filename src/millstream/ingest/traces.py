"""Lines of a stack trace, joined with the line that they belong to.

A trace has one time, in its first line. If each line became a record, all but the first would have
no time; joined, they are one record with newlines in it.

Knows lines. Does not know files or time: the caller decides when nothing more is to come.
"""

import re
from collections.abc import Iterable
from typing import Final

from millstream.ingest.lines import Line

# The longest line that a pipeline parses.
RECORD_BYTES_MAX: Final = 64 * 1024
_CONTINUES = re.compile(
    rb"[ \t]+\S|Caused by: |Suppressed: |Traceback \(most recent call last\):"
    rb"|(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b"
    rb"|During handling of the above exception|The above exception was the direct cause"
)
# The end of Python's traces, which is not indented.
_RAISED = re.compile(rb"[A-Za-z_][\w.]*(?:: |\Z)")
_TRACEBACK: Final = b"Traceback (most recent call last):"


class TraceJoiner:
    """Gives each line once it is known what follows it; the last one waits."""

    # A trace is written at once, if not in one write.
    quiet_seconds: Final = 0.5

    def __init__(self) -> None:
        self._held: Line | None = None
        # Within a trace of Python's, whose end is still to come.
        self._is_traceback = False

    @property
    def is_holding(self) -> bool:
        return self._held is not None

    def join(self, lines: Iterable[Line]) -> list[Line]:
        found: list[Line] = []
        for line in lines:
            if self._held is not None and self._belongs(self._held, line):
                self._append(self._held, line)
            else:
                found += self.flush()
                self._held = line
                self._is_traceback = line.data.endswith(_TRACEBACK)
        return found

    def flush(self) -> list[Line]:
        """What waited: nothing that belongs to it is to come."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _belongs(self, held: Line, line: Line) -> bool:
        if held.generation != line.generation or not (held.is_complete and line.is_complete):
            return False
        if len(held.data) + 1 + len(line.data) > RECORD_BYTES_MAX:
            return False
        if _CONTINUES.match(line.data) or not line.data:
            return True
        return self._is_traceback and _RAISED.match(line.data) is not None

    def _append(self, held: Line, line: Line) -> None:
        held.end_position = line.end_position
        if not line.data:
            return
        held.data += b"\n" + line.data
        if line.data.startswith(_TRACEBACK):
            self._is_traceback = True
        elif not line.data[:1].isspace():
            self._is_traceback = False
